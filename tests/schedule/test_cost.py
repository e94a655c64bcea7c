"""The model of time: what is hidden behind work costs nothing, what is not, its rest."""

from __future__ import annotations

from hlomem import hlo
from hlomem.pipeline import in_text_order, start_stages
from hlomem.schedule.cost import TRANSFER_FACTOR, Delays
from hlomem.schedule.flow import FlowBuilder

TEXT = """HloModule m, is_scheduled=true

ENTRY %e {
  %p = f32[1024] parameter(0)
  %q = f32[8192] parameter(1)
  %s = (f32[1024], f32[1024]) collective-permute-start(%p), source_target_pairs={{0,1}}
  %work = f32[8192] negate(%q)
  %d = f32[1024] collective-permute-done(%s)
  ROOT %t = (f32[1024], f32[8192]) tuple(%d, %work)
}
"""
WORK = 2 * 8192 * 4


def test_work_between_start_and_end_hides_a_transfer() -> None:
    stages = start_stages(hlo.parse(TEXT), order_lists=in_text_order)
    builder = FlowBuilder(stages, keeps_overlap=False)
    flow = builder.build(stages.module.entry, {})
    delays = Delays(flow.nodes, stages.options.machine.size_of)
    assert delays.total == WORK
    transfer = TRANSFER_FACTOR * 4096
    assert delays.of([0, 1, 2, 3, 4, 5]) == max(0, transfer - WORK) == 0
    assert delays.of([0, 1, 2, 4, 3, 5]) == transfer
