"""Computations that collectives were in for a while."""

from __future__ import annotations

from hlomem.history.computations.gpu_since_fusion import synchronized_collectives
from hlomem.history.computations.incremental_order import sorted_incrementally
from tests.history.orders import created, traces_of

BRANCHES = """\
HloModule branches, is_scheduled=true

%region_1.0 (p.0: f32[], p.1: f32[]) -> f32[] {
  %p.0 = f32[] parameter(0)
  %p.1 = f32[] parameter(1)
  ROOT %add.0 = f32[] add(%p.0, %p.1)
}

%region_0.0_spmd (param.6: f32[8]) -> f32[8] {
  %param.6 = f32[8]{0} parameter(0)
  ROOT %psum = f32[8]{0} all-reduce(%param.6), channel_id=1, replica_groups={}, \
to_apply=%region_1.0
}

%fused_multiply (param_0: f32[8]) -> f32[8] {
  %param_0 = f32[8]{0} parameter(0)
  ROOT %multiply.1 = f32[8]{0} multiply(%param_0, %param_0)
}

%region_2.0_spmd (param.7: f32[8]) -> f32[8] {
  %param.7 = f32[8]{0} parameter(0)
  ROOT %loop_multiply_fusion = f32[8]{0} fusion(%param.7), kind=kLoop, calls=%fused_multiply
}

%wrapped_sine_computation (param_0.1: f32[8]) -> f32[8] {
  %param_0.1 = f32[8]{0} parameter(0)
  ROOT %sine.1 = f32[8]{0} sine(%param_0.1)
}

ENTRY %main.0_spmd (param.4: f32[8], param.5: pred[]) -> f32[8] {
  %param.4 = f32[8]{0} parameter(0)
  %param.5 = pred[] parameter(1)
  %wrapped_sine = f32[8]{0} fusion(%param.4), kind=kLoop, calls=%wrapped_sine_computation
  ROOT %conditional.2 = f32[8]{0} conditional(%param.5, %wrapped_sine, %param.4), \
true_computation=%region_0.0_spmd, false_computation=%region_2.0_spmd
}
"""


def _order(text: str) -> list[str]:
    traces = traces_of(text)
    oldest_first = created("gpu", traces)
    vanished = synchronized_collectives(oldest_first, traces)
    order = sorted_incrementally(oldest_first, traces.call_graph, vanished=vanished)
    return [computation.name for computation in order]


def test_the_caller_of_a_collective_stands_after_what_fusion_made() -> None:
    assert _order(BRANCHES) == [
        "region_1.0",
        "fused_multiply",
        "region_2.0_spmd",
        "region_0.0_spmd",
        "wrapped_sine_computation",
        "main.0_spmd",
    ]


def test_without_a_collective_nothing_is_gone() -> None:
    text = BRANCHES.replace(
        "all-reduce(%param.6), channel_id=1, replica_groups={}, to_apply=%region_1.0",
        "negate(%param.6)",
    )
    traces = traces_of(text)
    assert not synchronized_collectives(created("gpu", traces), traces).callers
    assert _order(text).index("region_0.0_spmd") < _order(text).index("fused_multiply")


def test_every_collective_had_a_computation_after_fusion() -> None:
    text = BRANCHES.replace(
        "  ROOT %psum =",
        "  %gathered = f32[32]{0} all-gather(%param.6), dimensions={0}\n  ROOT %psum =",
    )
    traces = traces_of(text)
    oldest_first = created("gpu", traces)
    vanished = synchronized_collectives(oldest_first, traces)
    assert [caller.name for caller in vanished.callers] == ["region_0.0_spmd"] * 2
    assert oldest_first[vanished.older_count].name == "wrapped_sine_computation"
