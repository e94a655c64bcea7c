"""Computations that temporarily wrapped a collective.

The GPU compiler makes every collective asynchronous, in a computation of its own
(`service/gpu/gpu_hlo_schedule.cc: RunAsyncCollectivesConversionPasses`). Where it becomes
synchronous again (`GpuConvertAsyncCollectivesToSync`), its caller has moved in the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.computations.incremental_order import (
    NONE_VANISHED,
    Vanished,
    sorted_incrementally,
)
from hlomem.hlo.opcodes import COLLECTIVES

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace, Traces
    from hlomem.hlo.ir import HloComputation


def synchronized_collectives(created: list[HloComputation], traces: Traces) -> Vanished:
    """The computations of collectives that are synchronous again, by the order of all others."""
    count_in = {
        trace.computation: sum(
            inner.opcode in COLLECTIVES for inner in trace.computation.instructions
        )
        for trace in traces.values()
        if not trace.is_fused and not _is_asynchronous(trace)
    }
    if not any(count_in.values()):
        return NONE_VANISHED
    older_count = _fusion_end([traces[computation] for computation in created])
    callers: list[HloComputation] = []
    for computation in sorted_incrementally(created, traces.call_graph, older_count):
        callers += [computation] * count_in.get(computation, 0)
    return Vanished(older_count, callers)


def _fusion_end(created: list[Trace]) -> int:
    """The number of computations made before collectives became asynchronous.

    After them come bodies around one instruction and other asynchronous computations, except for
    transfers to the host, which are older than fusion.
    """
    has_fused = False
    for rank, trace in enumerate(created):
        is_late = trace.name.startswith("wrapped_") or _is_asynchronous(trace)
        if has_fused and is_late:
            return rank
        has_fused |= trace.is_fused and not is_late
    return len(created)


def _is_asynchronous(trace: Trace) -> bool:
    return trace.is_called_by("async-start")
