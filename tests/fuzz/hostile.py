"""Whole texts made to hurt a reader or a planner: deep, long, huge, cyclic, exponential.

Each function returns one text, of a size that grows with `many`; the figures in the docstrings are
those of 100,000. Those in `VALID_MODULES` are programs that XLA would compile, so they must be
planned; the others may be read or refused. None of them is large for what it says: what may explode
is only the work done with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SCHEDULED = "is_scheduled=true"


def _module(*computations: str, header: str = _SCHEDULED) -> str:
    return f"HloModule hostile, {header}\n\n" + "\n\n".join(computations) + "\n"


def _computation(name: str, lines: list[str], parameters: str = "p: f32[8]") -> str:
    """A computation whose last line is its root, an f32[8]."""
    *rest, root = lines
    body = "".join(f"  {line}\n" for line in rest) + f"  ROOT {root}\n"
    return f"{name} ({parameters}) -> f32[8] {{\n{body}}}"


def _entry(*lines: str, header: str = _SCHEDULED) -> str:
    return _module(_computation("ENTRY %main", list(lines)), header=header)


_P = "%p = f32[8]{0} parameter(0)"
_R = "%r = f32[8]{0} negate(%p)"


# --- programs ----------------------------------------------------------------------------------


def many_parameters(many: int) -> str:
    """100,000 of them."""
    count = many
    lines = [f"%p{n} = f32[8]{{0}} parameter({n})" for n in range(count)]
    parameters = ", ".join(f"p{n}: f32[8]" for n in range(count))
    return _module(_computation("ENTRY %main", [*lines, "%r = f32[8]{0} negate(%p0)"], parameters))


def _call_chain(length: int) -> str:
    bodies = [_computation("%c0", [_P, _R])]
    for n in range(1, length + 1):
        call = f"%r = f32[8]{{0}} call(%p), to_apply=%c{n - 1}"
        bodies.append(_computation(f"%c{n}" if n < length else "ENTRY %main", [_P, call]))
    return _module(*bodies)


def deep_calls(many: int) -> str:
    """A chain of 1,000 calls."""
    return _call_chain(many // 100)


def deeper_calls(many: int) -> str:
    """A chain of 10,000 calls, whose stack trace would have a gigabyte."""
    return _call_chain(many // 10)


def _bomb(levels: int) -> str:
    bodies = [_computation("%c0", [_P, _R])]
    for n in range(1, levels + 1):
        one = f"%a = f32[8]{{0}} call(%p), to_apply=%c{n - 1}"
        two = f"%b = f32[8]{{0}} call(%a), to_apply=%c{n - 1}"
        name = "ENTRY %main" if n == levels else f"%c{n}"
        bodies.append(_computation(name, [_P, one, two]))
    return _module(*bodies)


def call_bomb(_many: int) -> str:
    """Two calls of a computation with two calls, 40 deep: 2^40 runs of the innermost."""
    return _bomb(40)


def _loop_part(name: str, result: str, *lines: str) -> str:
    """A condition or a body."""
    body = "".join(f"  {line}\n" for line in ("%q = (f32[8]{0}) parameter(0)", *lines))
    return f"{name} (q: (f32[8])) -> {result} {{\n{body}}}"


def nested_whiles(many: int) -> str:
    """500 loops, each in the body of the next."""
    loop = "%w = (f32[8]{{0}}) while(%q), condition=%cond{0}, body=%body{0}"
    element = "%r = f32[8]{0} get-tuple-element(%w), index=0"
    lines = (
        element.replace("w", "q"),
        "%n = f32[8]{0} negate(%r)",
        "ROOT %t = (f32[8]{0}) tuple(%n)",
    )
    bodies = [_loop_part("%body0", "(f32[8])", *lines)]
    bodies += [
        _loop_part(f"%body{n}", "(f32[8])", "ROOT " + loop.format(n - 1))
        for n in range(1, many // 200)
    ]
    false = "ROOT %t = pred[] constant(false)"
    conditions = [_loop_part(f"%cond{n}", "pred[]", false) for n in range(many // 200)]
    main = [_P, "%q = (f32[8]{0}) tuple(%p)", loop.format(many // 200 - 1), element]
    return _module(*conditions, *bodies, _computation("ENTRY %main", main))


def wide_tuple(many: int) -> str:
    """A tuple of 20,000, each element taken out."""
    count = many // 5
    shape = ", ".join(["f32[8]{0}"] * count)
    operands = ", ".join(["%p"] * count)
    lines = [_P, f"%t = ({shape}) tuple({operands})"]
    lines += [f"%g{n} = f32[8]{{0}} get-tuple-element(%t), index={n}" for n in range(count)]
    return _entry(*lines, f"%r = f32[8]{{0}} negate(%g{count - 1})")


def deep_tuple(_many: int) -> str:
    """A tuple of a tuple, 100 deep, and taken apart again."""
    return _tuple_chain(100)


def deeper_tuple(_many: int) -> str:
    """The same 500 deep: the dump would have a gigabyte."""
    return _tuple_chain(500)


def _tuple_chain(depth: int) -> str:
    lines, last, shape = [_P], "%p", "f32[8]{0}"
    shapes = [shape]
    for n in range(depth):
        shape = f"({shape})"
        shapes.append(shape)
        lines.append(f"%t{n} = {shape} tuple({last})")
        last = f"%t{n}"
    for n in range(depth):
        lines.append(f"%g{n} = {shapes[depth - n - 1]} get-tuple-element({last}), index=0")
        last = f"%g{n}"
    return _entry(*lines, f"%r = f32[8]{{0}} negate({last})")


def all_alive(many: int) -> str:
    """3,000 buffers, all alive when the last is made."""
    count = many // 33
    lines = [_P, *(f"%n{n} = f32[{n + 8}]{{0}} broadcast(%p)" for n in range(count))]
    operands = ", ".join(f"%n{n}" for n in range(count))
    return _entry(*lines, f'%r = f32[8]{{0}} custom-call({operands}), custom_call_target="x"')


def many_operands(many: int) -> str:
    """An instruction with 100,000 operands."""
    operands = ", ".join(["%p"] * many)
    return _entry(_P, f'%r = f32[8]{{0}} custom-call({operands}), custom_call_target="x"')


def long_chain(many: int) -> str:
    """100,000 instructions, each of the one before."""
    lines = [_P, "%n0 = f32[8]{0} negate(%p)"]
    lines += [f"%n{n} = f32[8]{{0}} negate(%n{n - 1})" for n in range(1, many)]
    return _entry(*lines)


def stack_frame_cycle(_many: int) -> str:
    """Frames that are their own parents."""
    tables = (
        'FileNames\n1 "a.py"\n\nFunctionNames\n1 "f"\n2 "g"\n\n'
        "FileLocations\n1 {file_name_id=1 function_name_id=1 line=1 column=1}\n\n"
        "StackFrames\n"
        "1 {file_location_id=1 parent_frame_id=3}\n"
        "2 {file_location_id=1 parent_frame_id=2}\n"
        "3 {file_location_id=1 parent_frame_id=1}\n\n"
    )
    lines = [_P]
    lines += [
        f'%n{n} = f32[8]{{0}} negate(%p), metadata={{op_name="a/b" stack_frame_id={n}}}'
        for n in (1, 2, 3)
    ]
    text = _entry(*lines, '%r = f32[8]{0} add(%n1, %n2), metadata={op_name="a" stack_frame_id=1}')
    return text.replace("\n\n", f"\n\n{tables}\n", 1)


def long_op_name(many: int) -> str:
    """A scope of 100,000 parts."""
    scope = "/".join(["a"] * many)
    return _entry(_P, f'%r = f32[8]{{0}} negate(%p), metadata={{op_name="{scope}"}}')


def deep_backend_config(many: int) -> str:
    """JSON nested 100,000 deep."""
    config = '{"a":' * many + "1" + "}" * many
    return _entry(_P, f"%r = f32[8]{{0}} negate(%p), backend_config={config}")


def deep_origin(many: int) -> str:
    """An attribute of brackets nested 100,000 deep."""
    origin = "{" + "(" * many + '{"a"}' + ")" * many + "}"
    return _entry(_P, f"%r = f32[8]{{0}} negate(%p), origin={origin}")


def long_name(many: int) -> str:
    """A name of a million characters."""
    return _entry(_P, f"%{'r' * 10 * many} = f32[8]{{0}} negate(%p)")


def huge_constant(_many: int) -> str:
    """A gigabyte in 64 characters."""
    return _entry(
        "%c = f32[268435456]{0} constant({...})", "%r = f32[8]{0} slice(%c), slice={[0:8]}"
    )


def huge_sharding(_many: int) -> str:
    """A trillion devices."""
    sharding = "{devices=[1099511627776]<=[1099511627776]}"
    return _entry(_P, f"%r = f32[8]{{0}} negate(%p), sharding={sharding}")


def many_fusions(many: int) -> str:
    """20,000 fusions of one body."""
    body = _computation("%f", [_P, _R])
    lines = [_P, "%n0 = f32[8]{0} fusion(%p), kind=kLoop, calls=%f"]
    lines += [
        f"%n{n} = f32[8]{{0}} fusion(%n{n - 1}), kind=kLoop, calls=%f" for n in range(1, many // 5)
    ]
    return _module(body, _computation("ENTRY %main", lines))


def many_calls(many: int) -> str:
    """2,000 calls of one computation that hands its argument on 2,000 times."""
    count = many // 50
    body = [_P, "%b0 = f32[8]{0} bitcast(%p)"]
    body += [f"%b{n} = f32[8]{{0}} bitcast(%b{n - 1})" for n in range(1, count)]
    lines = [_P]
    for n in range(count):
        lines.append(f"%n{n} = f32[8]{{0}} negate(%p)")
        lines.append(f"%c{n} = f32[8]{{0}} call(%n{n}), to_apply=%f")
    return _module(_computation("%f", [*body, _R]), _computation("ENTRY %main", lines))


# --- texts that are no programs ----------------------------------------------------------------


def open_parentheses(many: int) -> str:
    """100,000 parentheses where a shape should be."""
    return _entry(_P, "%r = " + "(" * many)


def deep_shape(many: int) -> str:
    """A shape of tuples nested 100,000 deep."""
    return _entry(_P, "%r = " + "(" * many + "f32[]" + ")" * many + " tuple(%p)")


def deep_shape_in_head(many: int) -> str:
    """The same where a computation says its result."""
    return _entry(_P, _R).replace("-> f32[8]", "-> " + "(" * many + "f32[]" + ")" * many)


def deep_shape_in_header(many: int) -> str:
    """The same where a module says its layout."""
    shape = "(" * many + "f32[]" + ")" * many
    return _entry(_P, _R, header=f"is_scheduled=true, entry_computation_layout={{{shape}->f32[8]}}")


def huge_dimension(_many: int) -> str:
    """10^30 elements."""
    return _entry(f"%p = f32[1{'0' * 30}]{{0}} parameter(0)", _R)


def endless_dimension(many: int) -> str:
    """A dimension of 100,000 digits."""
    return _entry(f"%p = f32[{'9' * many}]{{0}} parameter(0)", _R)


def many_dimensions(many: int) -> str:
    """A shape of a million dimensions."""
    return _entry(f"%p = f32[{','.join(['1'] * (10 * many))}] parameter(0)", _R)


def long_parameter_number(many: int) -> str:
    """A parameter number of 100,000 digits."""
    return _entry(f"%p = f32[8]{{0}} parameter({'1' * many})", _R)


def long_tuple_index(many: int) -> str:
    """An index of 100,000 digits."""
    return _entry(
        "%p = (f32[8]{0}) parameter(0)",
        f"%r = f32[8]{{0}} get-tuple-element(%p), index={'1' * many}",
    )


def long_compact_index(many: int) -> str:
    """The same as part of an operand."""
    return _entry("%p = (f32[8]{0}) parameter(0)", f"%r = f32[8]{{0}} negate(%p#{'1' * many})")


def long_stack_frame(many: int) -> str:
    """A stack frame of 100,000 digits."""
    digits = "1" * many
    tables = f"StackFrames\n1 {{file_location_id={digits} parent_frame_id={digits}}}\n\n"
    text = _entry(_P, "%r = f32[8]{0} negate(%p), metadata={stack_frame_id=1}")
    return text.replace("\n\n", f"\n\n{tables}\n", 1)


def long_metadata_number(many: int) -> str:
    """A source line of 100,000 digits."""
    digits = "1" * many
    return _entry(_P, f"%r = f32[8]{{0}} negate(%p), metadata={{source_line={digits}}}")


def many_empty_lines(many: int) -> str:
    """A million of them between two instructions."""
    return _entry(_P, _R).replace("\n  ROOT", "\n" * (10 * many) + "  ROOT")


def many_blank_lines(many: int) -> str:
    """The same with a blank on each."""
    return _entry(_P, _R).replace("\n  ROOT", "\n " * 3 * many + "\n  ROOT")


def blanks_at_the_end(many: int) -> str:
    """A million line ends behind the module."""
    return _entry(_P, _R) + "\n \t" * 3 * many


def blanks_before(many: int) -> str:
    """A million line ends before the module."""
    return "\n" * (10 * many) + _entry(_P, _R)


def open_comments(many: int) -> str:
    """100,000 comments that never close."""
    return _entry(_P, _R).replace("negate", "/*" * many + "negate")


def open_comments_before(many: int) -> str:
    """The same before the module."""
    return "/*" * many + _entry(_P, _R)


def slashes(many: int) -> str:
    """A line of a million slashes in a string."""
    return _entry(_P, f'%r = f32[8]{{0}} negate(%p), metadata={{op_name="{"/" * (10 * many)}"}}')


def slashed_lines(many: int) -> str:
    """50,000 lines with `//` in a string."""
    lines = [f'%n{n} = f32[8]{{0}} negate(%p), metadata={{op_name="//"}}' for n in range(many // 2)]
    return _entry(_P, *lines)


def open_strings(many: int) -> str:
    """50,000 lines with a string that never closes."""
    lines = [f'%n{n} = f32[8]{{0}} negate(%p), metadata={{op_name="' for n in range(many // 2)]
    return _entry(_P, *lines)


def many_quotes(many: int) -> str:
    """A line of 100,001 quotes."""
    return _entry(_P, "%r = f32[8]{0} negate(%p), metadata=" + '"' * (many + 1))


def many_backslashes(many: int) -> str:
    """A string of 100,001 backslashes."""
    return _entry(_P, '%r = f32[8]{0} negate(%p), metadata={op_name="' + "\\" * (many + 1) + '"}')


def open_braces(many: int) -> str:
    """Attributes with 100,000 open braces."""
    return _entry(_P, "%r = f32[8]{0} negate(%p)" + ", a={" * many)


def closing_braces(many: int) -> str:
    """100,000 closing braces at the left margin."""
    return _entry(_P, _R) + "}\n" * many


def equal_signs(many: int) -> str:
    """100,000 equal signs on one line."""
    return _entry(_P, "%r = f32[8]{0} negate(%p), a=" + " = " * many)


def many_attributes(many: int) -> str:
    """100,000 attributes."""
    return _entry(_P, "%r = f32[8]{0} negate(%p)" + "".join(f", a{n}=1" for n in range(many)))


def half_opcodes(many: int) -> str:
    """A line of 100,000 words, none followed by a parenthesis."""
    return _entry(_P, "%r = (" + ") a" * many)


def half_operands(many: int) -> str:
    """A line of 100,000 closing parentheses."""
    return _entry(_P, "%r = f32[8]{0} negate(" + ")" * many + "x")


def many_computations_without_end(many: int) -> str:
    """50,000 heads and no body."""
    return _module(*[f"%c{n} (p: f32[8]) -> f32[8] {{" for n in range(many // 2)])


def cyclic_calls(_many: int) -> str:
    """Two computations that call each other."""
    one = _computation("%a", [_P, "%r = f32[8]{0} call(%p), to_apply=%b"])
    two = _computation("%b", [_P, "%r = f32[8]{0} call(%p), to_apply=%a"])
    return _module(
        one, two, _computation("ENTRY %main", [_P, "%r = f32[8]{0} call(%p), to_apply=%a"])
    )


def self_call(_many: int) -> str:
    """An entry that calls itself."""
    return _entry(_P, "%r = f32[8]{0} call(%p), to_apply=%main")


def cyclic_fusions(_many: int) -> str:
    """Two fused bodies that hold each other."""
    one = _computation("%a", [_P, "%r = f32[8]{0} fusion(%p), kind=kLoop, calls=%b"])
    two = _computation("%b", [_P, "%r = f32[8]{0} fusion(%p), kind=kLoop, calls=%a"])
    return _module(
        one,
        two,
        _computation("ENTRY %main", [_P, "%r = f32[8]{0} fusion(%p), kind=kLoop, calls=%a"]),
    )


def self_operand(_many: int) -> str:
    """An instruction that is its own operand."""
    return _entry(_P, "%r = f32[8]{0} negate(%r)")


def later_operand(_many: int) -> str:
    """Operands that come later in the schedule."""
    return _entry(
        _P, "%a = f32[8]{0} negate(%b)", "%b = f32[8]{0} negate(%p)", "%r = f32[8]{0} add(%a, %b)"
    )


def cyclic_operands(_many: int) -> str:
    """Instructions that need each other."""
    return _entry(
        _P, "%a = f32[8]{0} negate(%b)", "%b = f32[8]{0} negate(%a)", "%r = f32[8]{0} add(%a, %b)"
    )


def cyclic_control(_many: int) -> str:
    """Instructions that wait for each other."""
    return _entry(
        _P,
        "%a = f32[8]{0} negate(%p), control-predecessors={%r}",
        "%r = f32[8]{0} negate(%a), control-predecessors={%a}",
    )


def same_names(many: int) -> str:
    """50,000 instructions of one name."""
    return _entry(_P, *["%r = f32[8]{0} negate(%p)"] * (many // 2))


def other_line_ends(_many: int) -> str:
    """Names and strings with characters that `str.splitlines` splits at."""
    marks = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
    return _entry(_P, f'%r = f32[8]{{0}} negate(%p), metadata={{op_name="a{marks}b"}}')


def forged_line(_many: int) -> str:
    """A scope whose name holds lines of a dump."""
    name = "a\\n  BufferLiveRange:\\n    x{}:0-9\\nallocation 9: size 1:\\n"
    return _entry(_P, f'%r = f32[8]{{0}} negate(%p), metadata={{op_name="{name}/b"}}')


def wrong_alias(_many: int) -> str:
    """An alias of a parameter that is not there."""
    header = "is_scheduled=true, input_output_alias={ {7}: (99, {3,4}, may-alias) }"
    return _entry(_P, _R, header=header)


def wrong_tuple_index(_many: int) -> str:
    """An element that the tuple does not have."""
    return _entry("%p = (f32[8]{0}) parameter(0)", "%r = f32[8]{0} get-tuple-element(%p), index=9")


def loop_of_other_shape(many: int) -> str:
    """A loop whose body returns something else."""
    return nested_whiles(many).replace("(f32[8]{0}) tuple(%n)", "f32[8]{0} copy(%n)")


# --- dumps -------------------------------------------------------------------------------------


def _assignment(allocations: str) -> str:
    return f"BufferAssignment:\n{allocations}"


def _live_range(steps: str, ranges: str = "", peak: str = "", end: int = 1) -> str:
    title = "  Live ranges at 0 (peak):\n"
    return (
        f"HloLiveRange (max {end}):\n  InstructionSequence:\n{steps}"
        f"  BufferLiveRange:\n{ranges}{title}{peak}"
    )


def _tree(nodes: str, total: int = 4) -> str:
    title = f"  Stack trace breakdown for peak usage: {total} bytes\n"
    return _live_range("    0:a\n", "    a{}:0-1\n", "    a{}: 4 bytes (cumulative: 4 bytes)\n") + (
        title + nodes
    )


_SHARE = "(100.0%, total: 4 bytes, current: 4 bytes, remaining: 0 bytes)"


def many_allocations(many: int) -> str:
    """50,000 of them without values."""
    return _assignment(
        "".join(f"allocation {n}: size 4, maybe-live-out:\n" for n in range(many // 2))
    )


def many_overlapping_values(many: int) -> str:
    """20,000 values in the same bytes."""
    values = "".join(f" value: <{n} v{n} @0> (size=4,offset=0): f32[]\n" for n in range(many // 5))
    return _assignment(f"allocation 0: size 4, preallocated-temp:\n{values}")


def same_values(many: int) -> str:
    """One value 20,000 times."""
    values = " value: <1 v @0> (size=4,offset=0): f32[]\n" * (many // 5)
    return _assignment(f"allocation 0: size 4, preallocated-temp:\n{values}")


def endless_size(_many: int) -> str:
    """A size of 4,000 digits."""
    return _assignment(f"allocation 0: size 1{'0' * 4000}:\n")


def largest_sizes(_many: int) -> str:
    """Sizes whose sum does not fit 64 bits."""
    return _assignment("".join(f"allocation {n}: size {2**63 - 1}:\n" for n in range(100)))


def negative_sizes(_many: int) -> str:
    """Sizes and offsets below nothing."""
    value = " value: <1 v @0> (size=-4,offset=-9223372036854775807): f32[]\n"
    return _assignment(f"allocation 0: size -8, preallocated-temp:\n{value}")


def many_unknown_attributes(many: int) -> str:
    """100,000 attributes nobody knows."""
    return _assignment(f"allocation 0: size 4{', new' * many}:\n")


def open_bars(many: int) -> str:
    """Attributes with 100,000 bars."""
    return _assignment(f"allocation 0: size 4, {'|' * (many + 1)}:\n")


def many_commas(many: int) -> str:
    """A header of 100,000 commas and colons."""
    return _assignment(f"allocation 0: size 4, a{':,' * many}\n")


def long_index(many: int) -> str:
    """A shape index of 100,000 steps."""
    index = "{" + ",".join(["0"] * many) + "}"
    value = f" value: <1 v{index} @0> (size=4,offset=0): f32[]\n"
    return _assignment(f"allocation 0: size 4, preallocated-temp:\n{value}")


def deep_value_shape(many: int) -> str:
    """A value whose shape is nested 100,000 deep."""
    shape = "(" * many + "f32[]" + ")" * many
    value = f" value: <1 v @0> (size=4,offset=0): {shape}\n"
    return _assignment(f"allocation 0: size 4, preallocated-temp:\n{value}")


def blank_lines(many: int) -> str:
    """A million empty lines behind the title."""
    return _assignment("\n" * (10 * many))


def long_sequence(many: int) -> str:
    """100,000 steps, all values alive all the time."""
    count = many
    steps = "".join(f"    {n}:i{n}\n" for n in range(count))
    ranges = "".join(f"    i{n}{{}}:0-{count}\n" for n in range(count))
    peak = "".join(f"    i{n}{{}}: 4 bytes (cumulative: {4 * n + 4} bytes)\n" for n in range(count))
    return _live_range(steps, ranges, peak, count)


def endless_ranges(_many: int) -> str:
    """Live ranges that end before they begin, and at the end of time."""
    ranges = "    a{}:9223372036854775807-0\n    b{}:0-9223372036854775807\n    c{}:-9-9\n"
    return _live_range("    0:a\n", ranges, "", 2**63 - 1)


def late_peak(_many: int) -> str:
    """A peak at a time that never comes."""
    return _live_range("    0:a\n", "    a{}:0-1\n").replace(
        "at 0 (peak)", f"at {2**63 - 1} (peak)"
    )


def deep_tree(many: int) -> str:
    """A tree 2,000 deep."""
    rows = [
        f"    a {_SHARE}\n".replace("current: 4", "current: 0").replace(
            "remaining: 0", "remaining: 4"
        )
    ]
    rows += [
        f"  {'    ' * depth}└── a {_SHARE}\n".replace("current: 4", "current: 0")
        for depth in range(1, many // 50)
    ]
    return _tree("".join(rows) + f"  {'    ' * (many // 50)}└── a {_SHARE}\n")


def wide_tree(many: int) -> str:
    """A tree of 50,000 leaves."""
    share = _SHARE.replace("current: 4", "current: 0")
    return _tree(f"    a {_SHARE}\n" + f"    a {share}\n" * (many // 2))


def forged_tree(_many: int) -> str:
    """A scope whose name holds lines of the dump, control characters and markup."""
    name = "a\nallocation 9: size 1:\n\x1b[2J</script>\u202e\x9b"
    return _tree(f"    {name} {_SHARE}\n")


def half_nodes(many: int) -> str:
    """A name of 100,000 parentheses."""
    return _tree(f"    {'(' * many}\n")


def almost_nodes(many: int) -> str:
    """A name that nearly ends 50,000 times."""
    return _tree(f"    {' (1.0%, total: ' * (many // 2)}\n")


def name_of_lines(many: int) -> str:
    """A name of 300,000 lines."""
    return _tree(f"    a{chr(10) * 3 * many} {_SHARE}\n")


def log_lines(many: int) -> str:
    """100,000 lines of a log in a dump that is damaged besides."""
    return _assignment("I0101 00:00:00.000000 1 a.cc:1] x\n" * many + "allocation x\n")


def many_positions(many: int) -> str:
    """A value at 100,000 positions."""
    positions = "".join(f"  i{n}\n" for n in range(many))
    return (
        "\nTotal bytes used: 4 (4B)\n\nUsed values:\n<0 a @0>\n positions:\n"
        f"{positions} uses:\n from instruction: %a = f32[] parameter(0)\n"
    )


DUMPS: list[Callable[[int], str]] = [
    many_allocations,
    many_overlapping_values,
    same_values,
    endless_size,
    largest_sizes,
    negative_sizes,
    many_unknown_attributes,
    open_bars,
    many_commas,
    long_index,
    deep_value_shape,
    blank_lines,
    long_sequence,
    endless_ranges,
    late_peak,
    deep_tree,
    wide_tree,
    forged_tree,
    half_nodes,
    almost_nodes,
    name_of_lines,
    log_lines,
    many_positions,
]

VALID_MODULES: list[Callable[[int], str]] = [
    many_parameters,
    deep_calls,
    nested_whiles,
    wide_tuple,
    deep_tuple,
    all_alive,
    many_operands,
    long_chain,
    stack_frame_cycle,
    long_op_name,
    deep_backend_config,
    deep_origin,
    long_name,
    huge_constant,
    huge_sharding,
    many_fusions,
    slashes,
    slashed_lines,
    many_attributes,
    many_empty_lines,
    many_blank_lines,
    blanks_at_the_end,
    blanks_before,
    other_line_ends,
    forged_line,
]

MODULES: list[Callable[[int], str]] = [
    *VALID_MODULES,
    many_calls,
    deeper_calls,
    deeper_tuple,
    call_bomb,
    open_parentheses,
    deep_shape,
    deep_shape_in_head,
    deep_shape_in_header,
    huge_dimension,
    endless_dimension,
    many_dimensions,
    long_parameter_number,
    long_tuple_index,
    long_compact_index,
    long_stack_frame,
    long_metadata_number,
    open_comments,
    open_comments_before,
    open_strings,
    many_quotes,
    many_backslashes,
    open_braces,
    closing_braces,
    equal_signs,
    half_opcodes,
    half_operands,
    many_computations_without_end,
    cyclic_calls,
    self_call,
    cyclic_fusions,
    self_operand,
    later_operand,
    cyclic_operands,
    cyclic_control,
    same_names,
    wrong_alias,
    wrong_tuple_index,
    loop_of_other_shape,
]
