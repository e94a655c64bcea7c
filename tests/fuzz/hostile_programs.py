"""Programs made to hurt a reader or a planner, which XLA would compile or say why not."""

from __future__ import annotations

from tests.fuzz.hostile_parts import NEGATED, PARAMETER, make_computation, make_entry, make_module


def many_parameters(many: int) -> str:
    """100,000 of them."""
    count = many
    lines = [f"%p{n} = f32[8]{{0}} parameter({n})" for n in range(count)]
    parameters = ", ".join(f"p{n}: f32[8]" for n in range(count))
    return make_module(
        make_computation("ENTRY %main", [*lines, "%r = f32[8]{0} negate(%p0)"], parameters)
    )


def _call_chain(length: int) -> str:
    bodies = [make_computation("%c0", [PARAMETER, NEGATED])]
    for n in range(1, length + 1):
        call = f"%r = f32[8]{{0}} call(%p), to_apply=%c{n - 1}"
        bodies.append(
            make_computation(f"%c{n}" if n < length else "ENTRY %main", [PARAMETER, call])
        )
    return make_module(*bodies)


def deep_calls(many: int) -> str:
    """A chain of 1,000 calls."""
    return _call_chain(many // 100)


def deeper_calls(many: int) -> str:
    """A chain of 10,000 calls, whose stack trace would have a gigabyte."""
    return _call_chain(many // 10)


def _bomb(levels: int) -> str:
    bodies = [make_computation("%c0", [PARAMETER, NEGATED])]
    for n in range(1, levels + 1):
        one = f"%a = f32[8]{{0}} call(%p), to_apply=%c{n - 1}"
        two = f"%b = f32[8]{{0}} call(%a), to_apply=%c{n - 1}"
        name = "ENTRY %main" if n == levels else f"%c{n}"
        bodies.append(make_computation(name, [PARAMETER, one, two]))
    return make_module(*bodies)


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
    main = [PARAMETER, "%q = (f32[8]{0}) tuple(%p)", loop.format(many // 200 - 1), element]
    return make_module(*conditions, *bodies, make_computation("ENTRY %main", main))


def wide_tuple(many: int) -> str:
    """A tuple of 20,000, each element taken out."""
    count = many // 5
    shape = ", ".join(["f32[8]{0}"] * count)
    operands = ", ".join(["%p"] * count)
    lines = [PARAMETER, f"%t = ({shape}) tuple({operands})"]
    lines += [f"%g{n} = f32[8]{{0}} get-tuple-element(%t), index={n}" for n in range(count)]
    return make_entry(*lines, f"%r = f32[8]{{0}} negate(%g{count - 1})")


def deep_tuple(_many: int) -> str:
    """A tuple of a tuple, 100 deep, and taken apart again."""
    return _tuple_chain(100)


def deeper_tuple(_many: int) -> str:
    """The same 500 deep: the dump would have a gigabyte."""
    return _tuple_chain(500)


def _tuple_chain(depth: int) -> str:
    lines, last, shape = [PARAMETER], "%p", "f32[8]{0}"
    shapes = [shape]
    for n in range(depth):
        shape = f"({shape})"
        shapes.append(shape)
        lines.append(f"%t{n} = {shape} tuple({last})")
        last = f"%t{n}"
    for n in range(depth):
        lines.append(f"%g{n} = {shapes[depth - n - 1]} get-tuple-element({last}), index=0")
        last = f"%g{n}"
    return make_entry(*lines, f"%r = f32[8]{{0}} negate({last})")


def all_alive(many: int) -> str:
    """3,000 buffers, all alive when the last is made."""
    count = many // 33
    lines = [PARAMETER, "%z = f32[] constant(0)"]
    lines += [f"%n{n} = f32[{n + 8}]{{0}} broadcast(%z), dimensions={{}}" for n in range(count)]
    operands = ", ".join(f"%n{n}" for n in range(count))
    return make_entry(*lines, f'%r = f32[8]{{0}} custom-call({operands}), custom_call_target="x"')


def many_operands(many: int) -> str:
    """An instruction with 100,000 operands."""
    operands = ", ".join(["%p"] * many)
    return make_entry(
        PARAMETER, f'%r = f32[8]{{0}} custom-call({operands}), custom_call_target="x"'
    )


def long_chain(many: int) -> str:
    """100,000 instructions, each of the one before."""
    lines = [PARAMETER, "%n0 = f32[8]{0} negate(%p)"]
    lines += [f"%n{n} = f32[8]{{0}} negate(%n{n - 1})" for n in range(1, many)]
    return make_entry(*lines)


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
    lines = [PARAMETER]
    lines += [
        f'%n{n} = f32[8]{{0}} negate(%p), metadata={{op_name="a/b" stack_frame_id={n}}}'
        for n in (1, 2, 3)
    ]
    text = make_entry(
        *lines, '%r = f32[8]{0} add(%n1, %n2), metadata={op_name="a" stack_frame_id=1}'
    )
    return text.replace("\n\n", f"\n\n{tables}\n", 1)


def long_op_name(many: int) -> str:
    """A scope of 100,000 parts."""
    scope = "/".join(["a"] * many)
    return make_entry(PARAMETER, f'%r = f32[8]{{0}} negate(%p), metadata={{op_name="{scope}"}}')


def deep_backend_config(many: int) -> str:
    """JSON nested 100,000 deep."""
    config = '{"a":' * many + "1" + "}" * many
    return make_entry(PARAMETER, f"%r = f32[8]{{0}} negate(%p), backend_config={config}")


def deep_origin(many: int) -> str:
    """An attribute of brackets nested 100,000 deep."""
    origin = "{" + "(" * many + '{"a"}' + ")" * many + "}"
    return make_entry(PARAMETER, f"%r = f32[8]{{0}} negate(%p), origin={origin}")


def long_name(many: int) -> str:
    """A name of a million characters."""
    return make_entry(PARAMETER, f"%{'r' * 10 * many} = f32[8]{{0}} negate(%p)")


def huge_constant(_many: int) -> str:
    """A gigabyte in 64 characters."""
    return make_entry(
        "%c = f32[268435456]{0} constant({...})", "%r = f32[8]{0} slice(%c), slice={[0:8]}"
    )


def huge_sharding(_many: int) -> str:
    """A trillion devices."""
    sharding = "{devices=[1099511627776]<=[1099511627776]}"
    return make_entry(PARAMETER, f"%r = f32[8]{{0}} negate(%p), sharding={sharding}")


def many_fusions(many: int) -> str:
    """20,000 fusions of one body."""
    body = make_computation("%f", [PARAMETER, NEGATED])
    lines = [PARAMETER, "%n0 = f32[8]{0} fusion(%p), kind=kLoop, calls=%f"]
    lines += [
        f"%n{n} = f32[8]{{0}} fusion(%n{n - 1}), kind=kLoop, calls=%f" for n in range(1, many // 5)
    ]
    return make_module(body, make_computation("ENTRY %main", lines))


def many_calls(many: int) -> str:
    """2,000 calls of one computation that hands its argument on 2,000 times."""
    count = many // 50
    body = [PARAMETER, "%b0 = f32[8]{0} bitcast(%p)"]
    body += [f"%b{n} = f32[8]{{0}} bitcast(%b{n - 1})" for n in range(1, count)]
    lines = [PARAMETER]
    for n in range(count):
        lines.append(f"%n{n} = f32[8]{{0}} negate(%p)")
        lines.append(f"%c{n} = f32[8]{{0}} call(%n{n}), to_apply=%f")
    return make_module(
        make_computation("%f", [*body, NEGATED]), make_computation("ENTRY %main", lines)
    )
