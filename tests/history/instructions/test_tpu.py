"""Users and instructions as memory-space assignment leaves them."""

from __future__ import annotations

from hlomem import hlo
from hlomem.analysis.call_graph import CallGraph
from hlomem.history.instructions.tpu import tpu_instructions_read_anew, tpu_reordered_users

MODULE = """\
HloModule m, is_scheduled=true

%body (p.0: f32[8]) -> (f32[8], f32[8], f32[8], f32[8]) {
  %p.0 = f32[8] parameter(0)
  ROOT %r.0 = (f32[8], f32[8], f32[8], f32[8]) tuple(%p.0, %p.0, %p.0, %p.0)
}

ENTRY %main (a: f32[8]) -> (f32[8], f32[8], f32[8], f32[8]) {
  %a = f32[8] parameter(0)
  %copy-start = (f32[8]{0:S(1)}, f32[8], u32[]{:S(2)}) copy-start(%a)
  %copy-done = f32[8]{0:S(1)} copy-done(%copy-start)
  %b = f32[8] negate(%copy-done)
  %c = f32[8] add(%b, %a)
  %fusion = (f32[8], f32[8], f32[8], f32[8]) fusion(%c), kind=kLoop, calls=%body
  %part.3 = f32[8] get-tuple-element(%fusion), index=3
  %part.2 = f32[8] get-tuple-element(%fusion), index=2
  %part.0 = f32[8] get-tuple-element(%fusion), index=0
  ROOT %result = (f32[8], f32[8], f32[8], f32[8]) tuple(%part.0, %part.2, %part.3, %a)
}
"""


def test_who_reads_the_copy_leaves_its_place_to_the_copy() -> None:
    graph = CallGraph(hlo.parse(MODULE))
    entry = graph.module.entry
    by_name = {each.name: each for each in entry.instructions}
    users = tpu_reordered_users(entry, graph)
    # Once `b, c, result` read it; `copy-start` came last, and took the place of `b`.
    assert [each.name for each in users[by_name["a"]]] == ["copy-start", "c", "result"]


def test_the_last_part_takes_the_place_of_a_dropped_one() -> None:
    graph = CallGraph(hlo.parse(MODULE))
    entry = graph.module.entry
    by_name = {each.name: each for each in entry.instructions}
    users = tpu_reordered_users(entry, graph)
    assert [each.name for each in users[by_name["fusion"]]] == ["part.0", "part.3", "part.2"]


def test_copies_are_made_last() -> None:
    graph = CallGraph(hlo.parse(MODULE))
    listed = [each.name for each in tpu_instructions_read_anew(graph.module.entry, graph)]
    assert listed[-2:] == ["copy-start", "copy-done"]
    assert listed[0] == "a"
