"""A slice of a stack is the value that was stacked, also where it is converted on the way."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.opt.checks.equivalence import find_meaning_problems

_CONVERTED = """HloModule m, is_scheduled=true

ENTRY %main (x: f32[8,128], i: s32[]) -> bf16[8,128] {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %i = s32[] parameter(1)
  %zero = f32[] constant(0)
  %place = s32[] constant(1)
  %first = s32[] constant(0)
  %room = f32[2,8,128]{2,1,0:T(8,128)} broadcast(%zero), dimensions={}
  %part = f32[1,8,128]{2,1,0:T(8,128)} bitcast(%x)
  %stack = f32[2,8,128]{2,1,0:T(8,128)} dynamic-update-slice(%room, %part, %place, %first, %first)
  %slice = bf16[1,8,128]{2,1,0:T(8,128)(2,1)} dynamic-slice(TAKEN, %place, %first, %first), SIZES
  ROOT %result = bf16[8,128]{1,0:T(8,128)(2,1)} bitcast(%slice)
}
"""


def _converted(taken: str) -> hlo.HloModule:
    text = _CONVERTED.replace("SIZES", "dynamic_slice_sizes={1,8,128}")
    return hlo.parse(text.replace("TAKEN", taken))


@pytest.mark.parametrize(("taken", "problems"), [("%part", 0), ("%stack", 0), ("%room", 1)])
def test_a_slice_that_is_converted_is_the_value_that_was_stacked(taken: str, problems: int) -> None:
    given, edited = _converted("%stack"), _converted(taken)
    assert len(find_meaning_problems(given, edited)) == problems
