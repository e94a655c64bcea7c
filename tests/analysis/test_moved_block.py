"""Orders that differ in the place of one stretch of instructions."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.analysis.moved_ranges import find_changed_buffers
from hlomem.hlo.schedule import Schedule
from hlomem.pipeline import Stages, start_stages

CHAIN = """HloModule m, is_scheduled=true

ENTRY e {
  p = f32[8] parameter(0)
  a = f32[8] negate(p)
  b = f32[8] exponential(p)
  c = f32[8] sine(p)
  ab = f32[8] add(a, b)
  abc = f32[8] add(ab, c)
  d = f32[8] cosine(p)
  ROOT r = f32[8] add(abc, d)
}
"""


@pytest.mark.parametrize(
    ("order", "changed"),
    [
        ("p a b c ab abc d r", set[str]()),
        ("p b a c ab abc d r", {"a"}),  # two that change places: the one is said to have moved
        ("p a b ab c abc d r", {"c"}),
        ("p c a b ab abc d r", {"c"}),
        ("p a b c ab d abc r", {"ab", "abc", "c"}),  # and what it reads last
        ("p d c a b ab abc r", None),
    ],
)
def test_only_what_moves_lies_elsewhere(order: str, changed: set[str] | None) -> None:
    assert changed_in(start_stages(hlo.parse(CHAIN)), order) == changed


def changed_in(stages: Stages, order: str) -> set[str] | None:
    entry = stages.module.entry
    named = {instruction.name: instruction for instruction in entry.instructions}
    again = stages.rescheduled(Schedule({entry: [named[name] for name in order.split()]}))
    found = find_changed_buffers(
        stages.live_ranges, again.live_ranges, stages.dependents, stages.aliasing
    )
    if found is None:
        return None
    return {value.instruction.name for buffer in found for value in buffer.values}


def test_lives_that_did_not_change_lie_to_one_another_as_before() -> None:
    stages = start_stages(hlo.parse(CHAIN))
    order = "p c a b ab abc d r"
    changed = changed_in(stages, order)
    assert changed is not None
    named = {instruction.name: instruction for instruction in stages.module.entry.instructions}
    entry = stages.module.entry
    again = stages.rescheduled(Schedule({entry: [named[name] for name in order.split()]}))
    kept = [value for value in stages.dataflow.values if value.instruction.name not in changed]
    assert kept
    for one in kept:
        for other in kept:
            before, after = (
                (ranges.range_of[one].end, ranges.range_of[other].start)
                for ranges in (stages.live_ranges, again.live_ranges)
            )
            assert (before[0] < before[1]) == (after[0] < after[1])
            assert (before[0] == before[1]) == (after[0] == after[1])


def test_a_loop_that_moves_takes_others_with_it() -> None:
    text = """HloModule m, is_scheduled=true

body {
  s = (s32[]) parameter(0)
  g = s32[] get-tuple-element(s), index=0
  ROOT t = (s32[]) tuple(g)
}

cond {
  s = (s32[]) parameter(0)
  ROOT k = pred[] constant(false)
}

ENTRY e {
  p = s32[] parameter(0)
  q = f32[8] parameter(1)
  i = (s32[]) tuple(p)
  w = (s32[]) while(i), condition=cond, body=body
  n = f32[8] negate(q)
  ROOT r = ((s32[]), f32[8]) tuple(w, n)
}
"""
    stages = start_stages(hlo.parse(text))
    assert changed_in(stages, "p q i n w r") == {"n"}
    assert changed_in(stages, "p q n i w r") == {"n"}
