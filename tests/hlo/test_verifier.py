"""A module whose shapes do not agree is refused before anybody plans with it."""

from __future__ import annotations

import pytest

from hlomem.base.errors import ParseError, UnsupportedError
from hlomem.hlo import parse
from hlomem.hlo.verifier import MAX_TUPLE_DEPTH, verify_module

CALLEES = """
%pair (p: (f32[8], s32[])) -> (f32[8], s32[]) {
  ROOT %p = (f32[8]{0}, s32[]) parameter(0)
}

%array (q: f32[8]) -> f32[8] {
  ROOT %q = f32[8]{0} parameter(0)
}

%two (q.1: f32[8], r.1: f32[8]) -> f32[8] {
  %q.1 = f32[8]{0} parameter(0)
  ROOT %r.1 = f32[8]{0} parameter(1)
}

%condition (p.1: (f32[8], s32[])) -> pred[] {
  %p.1 = (f32[8]{0}, s32[]) parameter(0)
  ROOT %t.1 = pred[] constant(false)
}
"""


def module_of(line: str, header: str = "") -> str:
    """An entry of one interesting line."""
    return (
        f"HloModule m, is_scheduled=true{header}\n{CALLEES}\n"
        "ENTRY %main (a: f32[8], s: s32[]) -> f32[8] {\n"
        "  %a = f32[8]{0} parameter(0)\n"
        "  %s = s32[] parameter(1)\n"
        "  %t = (f32[8]{0}, s32[]) tuple(%a, %s)\n"
        "  %u = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%a)\n"
        f"  %x = {line}\n"
        "  ROOT %r = f32[8]{0} negate(%a)\n}\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "(f32[8]{0}, s32[]) while(%t), condition=%condition, body=%pair",
        "(f32[8]{0}, s32[]) call(%t), to_apply=%pair",
        "f32[8]{0} conditional(%s, %a, %a), branch_computations={%array, %array}",
        "(f32[8]{0}, s32[]) opt-barrier(%t)",
        "(f32[8]{0}, s32[]) copy(%t)",
        "f32[8]{0} copy(%a)",
        "s32[2,4]{1,0} bitcast(%a)",
        "f32[8]{0} copy-done(%u)",
        "s32[] get-tuple-element(%t), index=1",
        "((f32[8]{0}, s32[]), f32[8]{0}) tuple(%t, %a)",
        "((f32[8]{0}, s32[]), (f32[16]{0}, s32[2]{0})) all-gather-start(%a, %s)",
        "(f32[8]{0}, f32[16]{0}) all-gather-start(%a)",
        "f32[8]{0} collective-permute-done(%u)",
        "(f32[8]{0}, u32[], token[]) send(%a, %s)",
        "(f32[8]{0}, s32[]) recv-done(%t)",
        "f32[<=8]{0} call(%a), to_apply=%array",
    ],
)
def test_what_agrees_is_let_through(line: str) -> None:
    verify_module(parse(module_of(line)))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "(f32[8]{0}, s32[]) while(%t), condition=%condition, body=%two",
            "`two` takes 2 operands, not 1",
        ),
        (
            "(f32[8]{0}, s32[]) while(%t), condition=%array, body=%pair",
            "`t` has shape `(f32[8], s32[])`, parameter `q` of `array` `f32[8]`",
        ),
        (
            "f32[8]{0} while(%t), condition=%condition, body=%pair",
            "the result has shape `f32[8]`, the root of `pair` `(f32[8], s32[])`",
        ),
        ("f32[8]{0} call(%a), to_apply=%two", "`two` takes 2 operands, not 1"),
        (
            "f32[9]{0} call(%a), to_apply=%array",
            "the result has shape `f32[9]`, the root of `array` `f32[8]`",
        ),
        (
            "f32[8]{0} conditional(%s, %a), branch_computations={%array, %array}",
            "expected 3 operands: one, and one for each branch",
        ),
        (
            "f32[8]{0} conditional(%s, %a, %t), branch_computations={%array, %pair}",
            "the result has shape `f32[8]`, the root of `pair` `(f32[8], s32[])`",
        ),
        ("(f32[8]{0}) tuple(%a, %s)", "the result is not a tuple of 2 elements"),
        ("f32[8]{0} tuple(%a)", "the result is not a tuple of 1 elements"),
        ("(s32[]) tuple(%a)", "an element has shape `s32[]`, `a` `f32[8]`"),
        (
            "s32[] get-tuple-element(%t), index=0",
            "the result has shape `s32[]`, the element `f32[8]`",
        ),
        ("f32[8]{0} opt-barrier(%t)", "the result does not have the tuples of its operand"),
        ("(f32[8]{0}) copy(%t)", "the result does not have the tuples of its operand"),
        ("(f32[8]{0}) bitcast(%a)", "the result does not have the tuples of its operand"),
        ("(f32[8]{0}, f32[8]{0}) copy-start(%a)", "the result is not a tuple of 3 elements"),
        ("((f32[8]), f32[8], u32[]) copy-start(%a)", "a copy-start copies one array"),
        ("f32[8]{0} copy-done(%a)", "the operand is not a tuple of 2 elements"),
        ("(f32[8]{0}) copy-done(%u)", "the result is a tuple"),
        ("(f32[8]{0}) send(%a, %s)", "the result is not a tuple of 3 elements"),
        (
            "(s32[], u32[], token[]) send(%a, %s)",
            "the first element has shape `s32[]`, `a` `f32[8]`",
        ),
        ("f32[8]{0} recv-done(%t)", "the result is not a tuple of 2 elements"),
        ("(f32[8]{0}, s32[]) recv-done(%a)", "the operand is not a tuple of 1 elements"),
        (
            "(s32[], token[]) recv-done(%t)",
            "the first element has shape `s32[]`, the operand's `f32[8]`",
        ),
        ("(f32[8]{0}, s32[]) all-gather-start()", "an operand is missing"),
        ("f32[8]{0} all-gather-start(%a)", "the result is not a tuple of 2 elements"),
        (
            "(f32[8]{0}, s32[]) all-gather-start(%a, %s)",
            "an element of the result is not a tuple of 2 elements",
        ),
        (
            "(f32[8]{0}) all-gather-done(%u)",
            "the result does not have the tuples of the started operation",
        ),
        ("f32[8]{0} collective-permute-done(%a)", "the operand is not a tuple of 2 elements"),
        (
            "f32[<=9]{0} call(%a), to_apply=%array",
            "the result has shape `f32[<=9]`, the root of `array` `f32[8]`",
        ),
    ],
)
def test_what_does_not_agree_is_refused_where_it_stands(line: str, problem: str) -> None:
    module = parse(module_of(line), "m.hlo")
    with pytest.raises(ParseError) as caught:
        verify_module(module)
    assert caught.value.problem.startswith(problem)
    assert (caught.value.line, caught.value.column) == (26, 3)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("input_output_alias={ {7}: (0, {}, may-alias) }", "output {7}"),
        ("input_output_alias={ {}: (2, {}, may-alias) }", "parameter 2 {}"),
        ("input_output_alias={ {}: (0, {1}, may-alias) }", "parameter 0 {1}"),
        ("buffer_donor={ (9, {}) }", "parameter 9 {}"),
        ("buffer_donor={ (1, {0}) }", "parameter 1 {0}"),
    ],
)
def test_aliases_of_what_is_not_there_are_refused(header: str, problem: str) -> None:
    module = parse(module_of("f32[8]{0} negate(%a)", f", {header}"))
    with pytest.raises(ParseError) as caught:
        verify_module(module)
    assert caught.value.problem == f"the header aliases or donates {problem}, which is not there"
    assert caught.value.line == 1


def test_tuples_are_nested_only_so_deep() -> None:
    def nested(depth: int) -> str:
        shape = "(" * depth + "f32[8]{0}" + ")" * depth
        return module_of(f'{shape} custom-call(%a), custom_call_target="x"')

    verify_module(parse(nested(MAX_TUPLE_DEPTH)))
    with pytest.raises(UnsupportedError, match="nested deeper than 100 levels") as caught:
        verify_module(parse(nested(MAX_TUPLE_DEPTH + 1)))
    assert caught.value.line == 26


@pytest.mark.parametrize("shape", ["f32[?]{0}", "(s32[], (f32[2,?]{1,0}))"])
def test_shapes_without_a_bound_are_refused(shape: str) -> None:
    module = parse(module_of(f'{shape} custom-call(%a), custom_call_target="x"'))
    with pytest.raises(UnsupportedError, match="unbounded dimension has no size") as caught:
        verify_module(module)
    assert caught.value.line == 26


def test_a_computation_runs_in_the_flow_or_inside_an_operation() -> None:
    text = module_of("f32[8]{0} call(%a), to_apply=%array")
    verify_module(parse(text))
    fused = "  %y = f32[8]{0} fusion(%a), kind=kLoop, calls=%array\n"
    with pytest.raises(ParseError, match="`array` runs both inside this and in the flow") as caught:
        verify_module(parse(text.replace("  ROOT %r =", f"{fused}  ROOT %r =")))
    assert caught.value.line == 27


def test_what_an_embedded_computation_calls_is_embedded_too() -> None:
    text = module_of("f32[8]{0} call(%a), to_apply=%array").replace(
        "ENTRY",
        "%outer (z: f32[8]) -> f32[8] {\n"
        "  %z = f32[8]{0} parameter(0)\n"
        "  ROOT %y = f32[8]{0} call(%z), to_apply=%array\n}\n\nENTRY",
    )
    applied = "  %w = f32[8]{0} map(%a), dimensions={0}, to_apply=%outer\n"
    with pytest.raises(ParseError, match="`array` runs both inside this and in the flow"):
        verify_module(parse(text.replace("  ROOT %r =", f"{applied}  ROOT %r =")))
