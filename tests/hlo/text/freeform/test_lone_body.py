"""A fused body in any form is read when somebody asks for it, as its place in the text says."""

from __future__ import annotations

import pytest

from hlomem.base.errors import ParseError
from hlomem.hlo import HloModule, format_module, parse

_LAYOUT = "entry_computation_layout={(f32[4]{0})->f32[4]{0}}"


def fused(*lines: str, before: str = "") -> str:
    """A module XLA might have printed, but for the body of its fusion."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"""\
HloModule m, {_LAYOUT}

{before}%f {{
{body}}}

ENTRY %e {{
  %p = f32[4]{{0}} parameter(0)
  ROOT %r = f32[4]{{0}} fusion(%p), kind=kLoop, calls=%f
}}
"""


def read(text: str) -> HloModule:
    module = parse(text)
    assert not module.computation_by_name["f"].is_open
    return module


def test_shapes_are_inferred() -> None:
    text = fused("%q = f32[4]{0} parameter(0)", "%a = abs(%q)", "ROOT %n = negate(%a)")
    module = read(text)
    body = module.computation_by_name["f"]
    assert body.root.shape.text == "f32[4]{0}"
    span = body.root.span
    assert text[span.start : span.end] == "%n = negate(%a)"


def test_instructions_inside_of_others_get_names() -> None:
    module = read(fused("%q = f32[4]{0} parameter(0)", "ROOT %n = negate(add(%q, abs(%q)))"))
    names = [each.name for each in module.computation_by_name["f"].instructions]
    assert names == ["q", "abs.anon", "add.anon", "n"]


def test_computations_inside_of_instructions_join_the_module() -> None:
    sum_ = "{ %x = f32[] parameter(0) %y = f32[] parameter(1) ROOT %s = add(%x, %y) }"
    module = read(
        fused(
            "%q = f32[4]{0} parameter(0)",
            "%z = f32[] constant(0)",
            f"%t = reduce(%q, %z), dimensions={{0}}, to_apply={sum_}",
            f"ROOT %u = f32[4]{{0}} map(%q, %q), dimensions={{0}}, to_apply={sum_}",
        )
    )
    body = module.computation_by_name["f"]
    assert [each.opcode for each in body.instructions][2:] == ["reduce", "map"]
    assert [each.name for each in module.computations] == ["_", "_.1", "f", "e"]
    assert [each.index for each in module.computations] == [0, 1, 2, 3]
    assert body.root.called_computations == (module.computations[1],)
    assert format_module(parse(format_module(module))) == format_module(module)


def test_callees_that_were_not_read_are_read_first() -> None:
    before = "%g {\n  %h = f32[] parameter(0)\n  ROOT %k = cosine(%h)\n}\n\n"
    module = read(
        fused(
            "%q = f32[4]{0} parameter(0)",
            "ROOT %m = map(%q), dimensions={0}, to_apply=%g",
            before=before,
        )
    )
    assert module.computation_by_name["f"].root.shape.text == "f32[4]{0}"


def test_a_config_over_lines_stays_as_it_is() -> None:
    config = '{\n    "a":1,\n    "b":[]}'
    module = read(
        fused("%q = f32[4]{0} parameter(0)", f"ROOT %n = negate(%q), backend_config={config}")
    )
    assert module.computation_by_name["f"].root.attributes["backend_config"] == config


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ROOT %n = add(%q, %x)", "operand `x` is not defined above"),
        ("ROOT %n = reshape(%q)", "the shape of `reshape` is missing"),
        ("ROOT %n = map(%q), dimensions={0}, to_apply=%f", "computation `f` is not defined"),
        ("ROOT %n = map(%q), dimensions={0}, to_apply=%e", "computation `e` is not defined"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(line: str, problem: str) -> None:
    module = read(fused("%q = f32[4]{0} parameter(0)", line))
    with pytest.raises(ParseError, match=problem) as caught:
        module.open_all()
    assert caught.value.line == 5


def test_many_bodies_that_call_each_other_are_read_without_recursion() -> None:
    count = 3000
    chain = "".join(
        f"%c{n}. {{\n  %q{n} = f32[] parameter(0)\n"
        f"  ROOT %n{n} = call(%q{n}), to_apply=%c{n - 1}.\n}}\n\n"
        for n in range(1, count)
    )
    before = f"%c0. {{\n  %q0 = f32[] parameter(0)\n  ROOT %n0 = negate(%q0)\n}}\n\n{chain}"
    lines = (
        "%q = f32[4]{0} parameter(0)",
        f"ROOT %m = map(%q), dimensions={{0}}, to_apply=%c{count - 1}.",
    )
    module = read(fused(*lines, before=before))
    assert module.computation_by_name["f"].root.shape.text == "f32[4]{0}"
