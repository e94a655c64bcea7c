"""Computations that collectives were in for a while.

The GPU compiler makes every collective asynchronous and wraps it into a computation of its own
(`gpu_hlo_schedule.cc: RunAsyncCollectivesConversionPasses`). Where the schedule leaves nothing to
do in between, the collective becomes synchronous again (`GpuConvertAsyncCollectivesToSync`) and its
computation is gone; but who called it has moved in the order of computations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.computations.incremental_order import (
    NONE_PASSING,
    Passing,
    sorted_incrementally,
)
from hlomem.hlo.opcodes import COLLECTIVES

if TYPE_CHECKING:
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation


def synchronized_collectives(created: list[HloComputation], call_graph: CallGraph) -> Passing:
    """The computations of collectives that are synchronous again, by the order of all others."""
    count_in = {
        computation: sum(each.opcode in COLLECTIVES for each in computation.instructions)
        for computation in created
        if not call_graph.is_fused(computation) and not _is_asynchronous(computation, call_graph)
    }
    if not any(count_in.values()):
        return NONE_PASSING
    older_count = _fusion_end(created, call_graph)
    callers: list[HloComputation] = []
    for computation in sorted_incrementally(created, call_graph, older_count):
        callers += [computation] * count_in.get(computation, 0)
    return Passing(older_count, callers)


def _fusion_end(created: list[HloComputation], call_graph: CallGraph) -> int:
    """How many computations were made before collectives became asynchronous.

    After them come bodies around one instruction and other asynchronous computations, except for
    transfers to the host, which are older than fusion.
    """
    has_fused = False
    for rank, computation in enumerate(created):
        is_late = computation.name.startswith("wrapped_") or _is_asynchronous(
            computation, call_graph
        )
        if has_fused and is_late:
            return rank
        has_fused |= call_graph.is_fused(computation) and not is_late
    return len(created)


def _is_asynchronous(computation: HloComputation, call_graph: CallGraph) -> bool:
    return any(site.opcode == "async-start" for site in call_graph.callsites[computation])
