"""Declared aliasing: a fusion may write over what nothing needs any more, where it reads it."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.opt.checks import Change, find_problems
from hlomem.opt.checks.over import find_over_problems

DECLARED = "output_to_operand_aliasing={{}: (0, {})}, "
GIVEN = """HloModule m, is_scheduled=true

%loop (a: f32[8,64], b: f32[64]) -> f32[8,64] {
  %a = f32[8,64]{1,0} parameter(0)
  %b = f32[64]{0} parameter(1)
  %wide = f32[8,64]{1,0} broadcast(%b), dimensions={1}
  %twice = f32[8,64]{1,0} multiply(%a, %wide)
  ROOT %sum = f32[8,64]{1,0} add(%twice, %a)
}

%turn (c: f32[8,8]) -> f32[8,8] {
  %c = f32[8,8]{1,0} parameter(0)
  %t = f32[8,8]{1,0} transpose(%c), dimensions={1,0}
  ROOT %n = f32[8,8]{1,0} negate(%t)
}

ENTRY %main (p: f32[8,8], w: f32[8,64], v: f32[64]) -> (f32[8,64], f32[8,8], f32[8]) {
  %p = f32[8,8]{1,0} parameter(0)
  %w = f32[8,64]{1,0} parameter(1)
  %v = f32[64]{0} parameter(2)
  %call = (f32[8,64]{1,0}, s8[32]{0}) custom-call(%p, %w), custom_call_target="__cublas$gemm"
  %made = f32[8,64]{1,0} get-tuple-element(%call), index=0
  %square = f32[8,8]{1,0} negate(%p)
  %early = f32[8,64]{1,0} negate(%made)
  %f = f32[8,64]{1,0} fusion(%made, %v), kind=kLoop, calls=%loop
  %g = f32[8,8]{1,0} fusion(%square), kind=kLoop, calls=%turn
  %late = f32[8,64]{1,0} add(%f, %early)
  %h = f32[8]{0} slice(%v), slice={[0:8]}
  ROOT %r = (f32[8,64]{1,0}, f32[8,8]{1,0}, f32[8]{0}) tuple(%late, %g, %h)
}
"""


def _problems(*changes: tuple[str, str]) -> list[str]:
    edited = GIVEN
    for old, new in changes:
        assert old in edited, old
        edited = edited.replace(old, new)
    return find_over_problems(hlo.parse(GIVEN), hlo.parse(edited))


LOOP = ("kind=kLoop, calls=%loop", f"kind=kLoop, {DECLARED}calls=%loop")
EARLY = "  %early = f32[8,64]{1,0} negate(%made)\n"
AFTER = "calls=%turn\n  %late"


def test_what_dies_may_be_written_over() -> None:
    assert _problems(LOOP) == []
    edited = hlo.parse(GIVEN.replace(*LOOP))
    assert find_problems(hlo.parse(GIVEN), [Change(edited, "over")]) == []


WRONG = {
    "needed by another that runs later": (
        LOOP,
        (EARLY, ""),
        (AFTER, f"calls=%turn\n{EARLY}  %late"),
    ),
    "read at other places than are written": (
        ("kind=kLoop, calls=%turn", f"kind=kLoop, {DECLARED}calls=%turn"),
    ),
    "another shape": (
        (
            "kind=kLoop, calls=%loop",
            "kind=kLoop, output_to_operand_aliasing={{}: (1, {})}, calls=%loop",
        ),
    ),
    "not a loop": (LOOP, (f"kind=kLoop, {DECLARED}", f"kind=kInput, {DECLARED}")),
    "an argument of the program": (LOOP, ("fusion(%made, %v)", "fusion(%w, %v)")),
    "other arithmetic": (LOOP, ("multiply(%a, %wide)", "add(%a, %wide)")),
    "other operands": (LOOP, ("add(%f, %early)", "add(%f, %f)")),
    "what is a result, too": (
        LOOP,
        ("add(%f, %early)", "add(%f, %early)\n  %out = f32[8,64]{1,0} bitcast(%made)"),
        ("tuple(%late, %g", "tuple(%out, %g"),
    ),
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=list(WRONG))
def test_wrong_declarations_are_refused(changes: tuple[tuple[str, str], ...]) -> None:
    assert _problems(*changes)


def test_memory_that_is_read_by_two_operands_is_refused() -> None:
    twice = GIVEN.replace("fusion(%made, %v)", "fusion(%made, %v, %made)").replace(
        "%loop (a: f32[8,64], b: f32[64])", "%loop (a: f32[8,64], b: f32[64], d: f32[8,64])"
    )
    twice = twice.replace(
        "  ROOT %sum = f32[8,64]{1,0} add(%twice, %a)",
        "  %d = f32[8,64]{1,0} parameter(2)\n  ROOT %sum = f32[8,64]{1,0} add(%twice, %d)",
    )
    edited = twice.replace(*LOOP)
    [problem] = find_over_problems(hlo.parse(twice), hlo.parse(edited))
    assert problem == "f reads call by two operands, and writes over it"
