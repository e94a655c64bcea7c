"""Texts made to hurt a reader: endless, unclosed, cyclic, and what only looks like a program."""

from __future__ import annotations

from tests.fuzz.hostile_parts import NEGATED, PARAMETER, make_computation, make_entry, make_module
from tests.fuzz.hostile_programs import nested_whiles


def open_parentheses(many: int) -> str:
    """100,000 parentheses where a shape should be."""
    return make_entry(PARAMETER, "%r = " + "(" * many)


def deep_shape(many: int) -> str:
    """A shape of tuples nested 100,000 deep."""
    return make_entry(PARAMETER, "%r = " + "(" * many + "f32[]" + ")" * many + " tuple(%p)")


def deep_shape_in_head(many: int) -> str:
    """The same where a computation says its result."""
    return make_entry(PARAMETER, NEGATED).replace(
        "-> f32[8]", "-> " + "(" * many + "f32[]" + ")" * many
    )


def deep_shape_in_header(many: int) -> str:
    """The same where a module says its layout."""
    shape = "(" * many + "f32[]" + ")" * many
    return make_entry(
        PARAMETER,
        NEGATED,
        header=f"is_scheduled=true, entry_computation_layout={{{shape}->f32[8]}}",
    )


def huge_dimension(_many: int) -> str:
    """10^30 elements."""
    return make_entry(f"%p = f32[1{'0' * 30}]{{0}} parameter(0)", NEGATED)


def endless_dimension(many: int) -> str:
    """A dimension of 100,000 digits."""
    return make_entry(f"%p = f32[{'9' * many}]{{0}} parameter(0)", NEGATED)


def many_dimensions(many: int) -> str:
    """A shape of a million dimensions."""
    return make_entry(f"%p = f32[{','.join(['1'] * (10 * many))}] parameter(0)", NEGATED)


def long_parameter_number(many: int) -> str:
    """A parameter number of 100,000 digits."""
    return make_entry(f"%p = f32[8]{{0}} parameter({'1' * many})", NEGATED)


def long_tuple_index(many: int) -> str:
    """An index of 100,000 digits."""
    return make_entry(
        "%p = (f32[8]{0}) parameter(0)",
        f"%r = f32[8]{{0}} get-tuple-element(%p), index={'1' * many}",
    )


def long_compact_index(many: int) -> str:
    """The same as part of an operand."""
    return make_entry("%p = (f32[8]{0}) parameter(0)", f"%r = f32[8]{{0}} negate(%p#{'1' * many})")


def long_stack_frame(many: int) -> str:
    """A stack frame of 100,000 digits."""
    digits = "1" * many
    tables = f"StackFrames\n1 {{file_location_id={digits} parent_frame_id={digits}}}\n\n"
    text = make_entry(PARAMETER, "%r = f32[8]{0} negate(%p), metadata={stack_frame_id=1}")
    return text.replace("\n\n", f"\n\n{tables}\n", 1)


def long_metadata_number(many: int) -> str:
    """A source line of 100,000 digits."""
    digits = "1" * many
    return make_entry(PARAMETER, f"%r = f32[8]{{0}} negate(%p), metadata={{source_line={digits}}}")


def many_empty_lines(many: int) -> str:
    """A million of them between two instructions."""
    return make_entry(PARAMETER, NEGATED).replace("\n  ROOT", "\n" * (10 * many) + "  ROOT")


def many_blank_lines(many: int) -> str:
    """The same with a blank on each."""
    return make_entry(PARAMETER, NEGATED).replace("\n  ROOT", "\n " * 3 * many + "\n  ROOT")


def blanks_at_the_end(many: int) -> str:
    """A million line ends behind the module."""
    return make_entry(PARAMETER, NEGATED) + "\n \t" * 3 * many


def blanks_before(many: int) -> str:
    """A million line ends before the module."""
    return "\n" * (10 * many) + make_entry(PARAMETER, NEGATED)


def open_comments(many: int) -> str:
    """100,000 comments that never close."""
    return make_entry(PARAMETER, NEGATED).replace("negate", "/*" * many + "negate")


def open_comments_before(many: int) -> str:
    """The same before the module."""
    return "/*" * many + make_entry(PARAMETER, NEGATED)


def slashes(many: int) -> str:
    """A line of a million slashes in a string."""
    return make_entry(
        PARAMETER, f'%r = f32[8]{{0}} negate(%p), metadata={{op_name="{"/" * (10 * many)}"}}'
    )


def slashed_lines(many: int) -> str:
    """50,000 lines with `//` in a string."""
    lines = [f'%n{n} = f32[8]{{0}} negate(%p), metadata={{op_name="//"}}' for n in range(many // 2)]
    return make_entry(PARAMETER, *lines)


def open_strings(many: int) -> str:
    """50,000 lines with a string that never closes."""
    lines = [f'%n{n} = f32[8]{{0}} negate(%p), metadata={{op_name="' for n in range(many // 2)]
    return make_entry(PARAMETER, *lines)


def many_quotes(many: int) -> str:
    """A line of 100,001 quotes."""
    return make_entry(PARAMETER, "%r = f32[8]{0} negate(%p), metadata=" + '"' * (many + 1))


def many_backslashes(many: int) -> str:
    """A string of 100,001 backslashes."""
    return make_entry(
        PARAMETER, '%r = f32[8]{0} negate(%p), metadata={op_name="' + "\\" * (many + 1) + '"}'
    )


def open_braces(many: int) -> str:
    """Attributes with 100,000 open braces."""
    return make_entry(PARAMETER, "%r = f32[8]{0} negate(%p)" + ", a={" * many)


def closing_braces(many: int) -> str:
    """100,000 closing braces at the left margin."""
    return make_entry(PARAMETER, NEGATED) + "}\n" * many


def equal_signs(many: int) -> str:
    """100,000 equal signs on one line."""
    return make_entry(PARAMETER, "%r = f32[8]{0} negate(%p), a=" + " = " * many)


def many_attributes(many: int) -> str:
    """100,000 attributes."""
    return make_entry(
        PARAMETER, "%r = f32[8]{0} negate(%p)" + "".join(f", a{n}=1" for n in range(many))
    )


def half_opcodes(many: int) -> str:
    """A line of 100,000 words, none followed by a parenthesis."""
    return make_entry(PARAMETER, "%r = (" + ") a" * many)


def half_operands(many: int) -> str:
    """A line of 100,000 closing parentheses."""
    return make_entry(PARAMETER, "%r = f32[8]{0} negate(" + ")" * many + "x")


def many_computations_without_end(many: int) -> str:
    """50,000 heads and no body."""
    return make_module(*[f"%c{n} (p: f32[8]) -> f32[8] {{" for n in range(many // 2)])


def cyclic_calls(_many: int) -> str:
    """Two computations that call each other."""
    one = make_computation("%a", [PARAMETER, "%r = f32[8]{0} call(%p), to_apply=%b"])
    two = make_computation("%b", [PARAMETER, "%r = f32[8]{0} call(%p), to_apply=%a"])
    return make_module(
        one,
        two,
        make_computation("ENTRY %main", [PARAMETER, "%r = f32[8]{0} call(%p), to_apply=%a"]),
    )


def self_call(_many: int) -> str:
    """An entry that calls itself."""
    return make_entry(PARAMETER, "%r = f32[8]{0} call(%p), to_apply=%main")


def cyclic_fusions(_many: int) -> str:
    """Two fused bodies that hold each other."""
    one = make_computation("%a", [PARAMETER, "%r = f32[8]{0} fusion(%p), kind=kLoop, calls=%b"])
    two = make_computation("%b", [PARAMETER, "%r = f32[8]{0} fusion(%p), kind=kLoop, calls=%a"])
    return make_module(
        one,
        two,
        make_computation(
            "ENTRY %main", [PARAMETER, "%r = f32[8]{0} fusion(%p), kind=kLoop, calls=%a"]
        ),
    )


def self_operand(_many: int) -> str:
    """An instruction that is its own operand."""
    return make_entry(PARAMETER, "%r = f32[8]{0} negate(%r)")


def later_operand(_many: int) -> str:
    """Operands that come later in the schedule."""
    return make_entry(
        PARAMETER,
        "%a = f32[8]{0} negate(%b)",
        "%b = f32[8]{0} negate(%p)",
        "%r = f32[8]{0} add(%a, %b)",
    )


def cyclic_operands(_many: int) -> str:
    """Instructions that need each other."""
    return make_entry(
        PARAMETER,
        "%a = f32[8]{0} negate(%b)",
        "%b = f32[8]{0} negate(%a)",
        "%r = f32[8]{0} add(%a, %b)",
    )


def cyclic_control(_many: int) -> str:
    """Instructions that wait for each other."""
    return make_entry(
        PARAMETER,
        "%a = f32[8]{0} negate(%p), control-predecessors={%r}",
        "%r = f32[8]{0} negate(%a), control-predecessors={%a}",
    )


def same_names(many: int) -> str:
    """50,000 instructions of one name."""
    return make_entry(PARAMETER, *["%r = f32[8]{0} negate(%p)"] * (many // 2))


def other_line_ends(_many: int) -> str:
    """Names and strings with characters that `str.splitlines` splits at."""
    marks = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
    return make_entry(PARAMETER, f'%r = f32[8]{{0}} negate(%p), metadata={{op_name="a{marks}b"}}')


def forged_line(_many: int) -> str:
    """A scope whose name holds lines of a dump."""
    name = "a\\n  BufferLiveRange:\\n    x{}:0-9\\nallocation 9: size 1:\\n"
    return make_entry(PARAMETER, f'%r = f32[8]{{0}} negate(%p), metadata={{op_name="{name}/b"}}')


def wrong_alias(_many: int) -> str:
    """An alias of a parameter that is not there."""
    header = "is_scheduled=true, input_output_alias={ {7}: (99, {3,4}, may-alias) }"
    return make_entry(PARAMETER, NEGATED, header=header)


def wrong_tuple_index(_many: int) -> str:
    """An element that the tuple does not have."""
    return make_entry(
        "%p = (f32[8]{0}) parameter(0)", "%r = f32[8]{0} get-tuple-element(%p), index=9"
    )


def loop_of_other_shape(many: int) -> str:
    """A loop whose body returns something else."""
    return nested_whiles(many).replace("(f32[8]{0}) tuple(%n)", "f32[8]{0} copy(%n)")
