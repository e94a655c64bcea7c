"""Temporaries replayed with some of them changed."""

from __future__ import annotations

import hlomem
from hlomem.advice.trial import Replay, shrunk
from hlomem.report.data.memory import MemoryView, build_memory

TEXT = """HloModule m, is_scheduled=true

ENTRY %main (a: f32[1024]) -> f32[] {
  %a = f32[1024]{0} parameter(0)
  %first = f32[1024]{0} custom-call(%a), custom_call_target="one"
  %second = f32[1024]{0} custom-call(%a), custom_call_target="two"
  %third = f32[1024]{0} custom-call(%first, %second), custom_call_target="three"
  ROOT %sum = f32[] custom-call(%third), custom_call_target="sum"
}
"""


def _memory() -> MemoryView:
    plan = hlomem.plan(TEXT, backend="cpu")
    return build_memory(plan.dump, plan.stages.module)


def test_what_is_gone_is_saved_where_most_is_alive() -> None:
    memory = _memory()
    replay = Replay(memory, 0)
    by_name = {each.name: each for each in replay.buffers}
    assert replay.most == 3 * 4096
    assert replay.saved({by_name["first"].id: ()}) == 4096
    assert replay.saved({each.id: () for each in replay.buffers}) == replay.most


def test_a_smaller_buffer_saves_the_difference_and_something_new_costs() -> None:
    replay = Replay(_memory(), 0)
    by_name = {each.name: each for each in replay.buffers}
    half = {by_name["first"].id: (shrunk(by_name["first"], 2048),)}
    assert replay.saved(half) == 2048
    assert replay.saved(half, [(0, 100, 1000)]) == 1048
    assert replay.saved({}) == 0
