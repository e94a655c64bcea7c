"""Kernels that round as they did: whole fusions repeated, or moved to other loads and stores."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.opt.checks.rounding import find_rounding_problems

SHAPE = "f32[4,64]{1,0}"
ONE = "f32[1,64]{1,0}"


def _program(body: str, call: str) -> str:
    return f"""HloModule test, is_scheduled=true

%fused {body}

ENTRY %main (p: {SHAPE}, i: s32[]) -> f32[64] {{
  %p = {SHAPE} parameter(0)
  %i = s32[] parameter(1)
  %q = {ONE} slice(%p), slice={{[0:1], [0:64]}}
  ROOT %f = f32[64]{{0}} fusion({call}), kind=kLoop, calls=%fused
}}
"""


def _sliced(arithmetic: str) -> str:
    """A fusion that loads a slice of a stack."""
    body = f"""(s: {SHAPE}, n: s32[]) -> f32[64] {{
  %s = {SHAPE} parameter(0)
  %n = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice = {ONE} dynamic-slice(%s, %n, %zero), dynamic_slice_sizes={{1,64}}
  %x = f32[64]{{0}} bitcast(%slice)
{arithmetic}}}"""
    return _program(body, "%p, %i")


def _given(arithmetic: str) -> str:
    """The same on a slice that is there."""
    body = f"""(s: {ONE}) -> f32[64] {{
  %s = {ONE} parameter(0)
  %x = f32[64]{{0}} bitcast(%s)
{arithmetic}}}"""
    return _program(body, "%q")


SQUARED = """  %y = f32[64]{0} multiply(%x, %x)
  ROOT %z = f32[64]{0} add(%y, %x)
"""
OTHER = """  %y = f32[64]{0} multiply(%x, %x)
  ROOT %z = f32[64]{0} subtract(%y, %x)
"""
NEGATED = """  ROOT %z = f32[64]{0} negate(%x)
"""


def test_the_same_arithmetic_on_a_slice_that_is_there_rounds_the_same() -> None:
    given, edited = hlo.parse(_sliced(SQUARED)), hlo.parse(_given(SQUARED))
    assert not find_rounding_problems(given, edited)
    assert not find_rounding_problems(given, edited, is_whole=True)


def test_kernels_that_are_no_loops_are_compared_as_a_whole() -> None:
    texts = [text.replace("kLoop", "kInput") for text in (_sliced(SQUARED), _given(SQUARED))]
    given, edited = map(hlo.parse, texts)
    assert not find_rounding_problems(given, edited)
    [problem] = find_rounding_problems(given, edited, is_whole=True)
    assert problem == "f is computed in another fusion"
    fewer = texts[0].replace(SHAPE, "f32[2,64]{1,0}")
    assert not find_rounding_problems(given, hlo.parse(fewer), is_whole=True)


def test_other_arithmetic_may_round_otherwise() -> None:
    given, edited = hlo.parse(_sliced(SQUARED)), hlo.parse(_given(OTHER))
    assert find_rounding_problems(given, edited) == ["f is computed in another fusion"]


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_rounds_in_one_way_only_may_be_anywhere(is_whole: bool) -> None:
    given, edited = hlo.parse(_sliced(SQUARED)), hlo.parse(_given(NEGATED))
    assert not find_rounding_problems(given, edited, is_whole=is_whole)


# Loops on a GPU.

_USED_ONCE = """  %y = f32[64]{0} multiply(%x, %x)
  %v = f32[64]{0} exponential(%x)
  ROOT %z = f32[64]{0} add(%y, %v)
"""
_USED_TWICE = """  %y = f32[64]{0} multiply(%x, %x)
  %v = f32[64]{0} exponential(%y)
  ROOT %z = f32[64]{0} add(%y, %v)
"""
_MASKED = """  %i = s32[64]{0} iota(), iota_dimension=0
  %k = s32[] constant(7)
  %ks = s32[64]{0} broadcast(%k), dimensions={}
  %here = pred[64]{0} compare(%i, %ks), direction=EQ
  %m = f32[64]{0} select(%here, %x, %x)
  %y = f32[64]{0} multiply(%m, %m)
  ROOT %z = f32[64]{0} add(%y, %m)
"""
_TWO = """  %y = f32[64]{0} exponential(%x)
  %z = f32[64]{0} divide(%y, %x)
  ROOT %t = (f32[64]{0}, f32[64]{0}) tuple(%y, %z)
"""
_ONE_OF_TWO = """  %y = f32[64]{0} exponential(%x)
  ROOT %z = f32[64]{0} divide(%y, %x)
"""


def _of_loops(given: str, edited: str) -> list[str]:
    pair = "(f32[64]{0}, f32[64]{0})"
    texts = [
        text.replace("-> f32[64]", f"-> {pair}").replace("%f = f32[64]{0}", f"%f = {pair}")
        if "tuple(" in text
        else text
        for text in (_given(given), _given(edited))
    ]
    return find_rounding_problems(*map(hlo.parse, texts), is_whole=True)


def test_a_loop_may_compute_what_it_had_loaded_if_that_rounds_in_one_way() -> None:
    assert not _of_loops(SQUARED, _MASKED)


def test_a_loop_may_leave_out_a_result() -> None:
    assert not _of_loops(_TWO, _ONE_OF_TWO)


@pytest.mark.parametrize(
    ("given", "edited"), [(_USED_ONCE, _USED_TWICE), (SQUARED, OTHER), (_ONE_OF_TWO, _USED_ONCE)]
)
def test_a_loop_of_other_arithmetic_is_refused(given: str, edited: str) -> None:
    assert _of_loops(given, edited) == ["f is computed in another fusion"]


def test_a_product_that_is_added_must_be_used_as_often() -> None:
    both = """  %y = f32[64]{0} multiply(%x, %x)
  %z = f32[64]{0} add(%y, %x)
  ROOT %t = (f32[64]{0}, f32[64]{0}) tuple(%y, %z)
"""
    assert _of_loops(both, SQUARED) == ["f is computed in another fusion"]
