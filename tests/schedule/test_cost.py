"""The model of time: what is hidden behind work costs nothing, what is not, its rest."""

from __future__ import annotations

from hlomem import hlo
from hlomem.machines.cpu import CPU
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
    delays = Delays(flow.nodes, stages.options.machine)
    assert delays.total == WORK
    transfer = TRANSFER_FACTOR * 4096
    assert delays.of([0, 1, 2, 3, 4, 5]) == max(0, transfer - WORK) == 0
    assert delays.of([0, 1, 2, 4, 3, 5]) == transfer


def _time_of(operation: str) -> int:
    text = f"""HloModule m, is_scheduled=true

ENTRY %e {{
  %p = f32[64,128] parameter(0)
  %q = f32[128,256] parameter(1)
  ROOT %r = {operation}
}}
"""
    stages = start_stages(hlo.parse(text), order_lists=in_text_order)
    flow = FlowBuilder(stages, keeps_overlap=False).build(stages.module.entry, {})
    return Delays(flow.nodes, stages.options.machine).total


def test_a_product_takes_the_time_of_its_bytes_or_of_its_multiplications() -> None:
    shape = "f32[64,256]"
    moved = 4 * (64 * 128 + 128 * 256 + 64 * 256)
    dot = _time_of(f"{shape} dot(%p, %q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
    assert dot == max(moved, 2 * 128 * 64 * 256 // CPU.flops_per_byte)
    kernel = _time_of(f"{shape} convolution(%p, %q), dim_labels=bf_io->bf")
    assert kernel == max(moved, 2 * 64 * 256 * 128 * 256 // 256 // CPU.flops_per_byte)
