"""What XLA refuses in a fusion is a problem, before XLA sees it."""

from __future__ import annotations

from hlomem import hlo
from hlomem.opt.checks import find_unread

_FUSION = """HloModule m, is_scheduled=true

%body (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %unread = s32[] constant(0)
  ROOT %twice = f32[4]{0} add(%p, %p)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %fusion = f32[4]{0} fusion(%x), kind=kLoop, calls=%body
}
"""


def test_an_instruction_of_a_fusion_that_is_not_read_is_a_problem() -> None:
    assert find_unread(hlo.parse(_FUSION)) == ["unread is not read in body"]
    assert find_unread(hlo.parse(_FUSION.replace("  %unread = s32[] constant(0)\n", ""))) == []
