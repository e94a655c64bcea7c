"""Optimisation barriers are gone, what they handed on is read from where it was made."""

from __future__ import annotations

from hlomem import hlo
from hlomem.hlo.barriers import has_barriers, without_barriers

TWO = """HloModule m, is_scheduled=true

ENTRY %e {
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %a = f32[8] negate(%p)
  %t = (f32[8], f32[8]) tuple(%a, %q)
  %b = (f32[8], f32[8]) opt-barrier(%t)
  %x = f32[8] get-tuple-element(%b), index=0
  %y = f32[8] get-tuple-element(%b), index=1
  %u = (f32[8], f32[8]) tuple(%x, %y)
  %c = (f32[8], f32[8]) opt-barrier(%u)
  %v = f32[8] get-tuple-element(%c), index=0
  %w = f32[8] get-tuple-element(%c), index=1
  ROOT %r = f32[8] add(%v, %w), control-predecessors={%b, %x, %t}
}
"""
WHOLE = """HloModule m, is_scheduled=true

ENTRY %e {
  %p = (f32[8], f32[8]) parameter(0)
  %b = (f32[8], f32[8]) opt-barrier(%p)
  %x = f32[8] get-tuple-element(%b), index=0
  %one = f32[8] parameter(1)
  %c = f32[8] opt-barrier(%one)
  ROOT %r = f32[8] add(%x, %c)
}
"""


def test_barriers_one_behind_the_other_leave_neither_them_nor_their_tuples() -> None:
    module = without_barriers(hlo.parse(TWO))
    assert [each.name for each in module.entry.instructions] == ["p", "q", "a", "r"]
    assert [operand.name for operand in module.entry.root.operands] == ["a", "q"]
    assert not module.entry.root.control_predecessors
    assert module.is_scheduled
    assert not has_barriers(module)


def test_what_was_no_tuple_of_the_program_is_handed_on_whole() -> None:
    module = without_barriers(hlo.parse(WHOLE))
    assert [each.name for each in module.entry.instructions] == ["p", "x", "one", "r"]
    x, one = module.entry.root.operands
    assert x.operands[0].name == "p"
    assert one.name == "one"


def test_a_program_without_barriers_stays_as_it_is() -> None:
    module = without_barriers(hlo.parse(TWO))
    assert without_barriers(module) is module
