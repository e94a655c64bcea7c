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
    [problem] = find_rounding_problems(given, edited, is_whole=True)
    assert problem == "f is computed in another fusion"


def test_other_arithmetic_may_round_otherwise() -> None:
    given, edited = hlo.parse(_sliced(SQUARED)), hlo.parse(_given(OTHER))
    assert find_rounding_problems(given, edited) == ["f is computed in another fusion"]


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_rounds_in_one_way_only_may_be_anywhere(is_whole: bool) -> None:
    given, edited = hlo.parse(_sliced(SQUARED)), hlo.parse(_given(NEGATED))
    assert not find_rounding_problems(given, edited, is_whole=is_whole)
