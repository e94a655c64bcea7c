"""The marks that passes leave on what they make, and walks through the program as theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.names import PARTITIONED, TOP_K_COMPARATOR
from hlomem.hlo.ir import HloComputation, HloInstruction
from hlomem.hlo.opcodes import RUN_IN_PLACE

if TYPE_CHECKING:
    from hlomem.history.computations.engine import Claims
    from hlomem.history.evidence import Trace, Traces

_CUT_OUT = frozenset({"fusion", "async-start"})
_CALLING = RUN_IN_PLACE | {"fusion"}


def wrapped_bodies(traces: Traces) -> list[Trace]:
    """Bodies of fusions around one instruction, as `FusionWrapperBase::RunImpl` goes."""
    bodies: dict[Trace, None] = {}
    walked: set[HloComputation] = set()  # XLA walks them again, and meets nothing new
    pending: list[HloComputation | HloInstruction] = [traces.entry.computation]
    while pending:
        item = pending.pop()
        if isinstance(item, HloInstruction):
            if item.opcode in RUN_IN_PLACE:
                pending += reversed(item.called_computations)
            elif (body := item.called_computations[0]).name.startswith("wrapped_"):
                bodies.setdefault(traces[body])
        elif item not in walked:
            walked.add(item)
            post_order = traces.call_graph.post_order(item)
            pending += reversed([caller for caller in post_order if caller.opcode in _CALLING])
    return list(bodies)


def first_calls(traces: Traces) -> dict[HloComputation, int]:
    """The computations numbered as a walk through the program, callees first, meets their calls.

    The bodies of fusions count as a part of their callers: they were cut out of them later.
    """
    callees = traces.call_graph.callees
    encounter: dict[HloComputation, int] = {}
    visited: set[HloComputation] = set()
    pending: list[HloComputation | list[HloComputation]] = [traces.entry.computation]
    while pending:
        item = pending.pop()
        if isinstance(item, list):  # what a computation calls, all of it visited
            for callee in item:
                encounter.setdefault(callee, len(encounter))
        elif item not in visited:
            visited.add(item)
            calls = calls_with_fusions(item, traces)
            pending.append(calls)
            pending += [callee for callee in reversed(calls) if callees[callee]]
    return encounter


def calls_with_fusions(caller: HloComputation, traces: Traces) -> list[HloComputation]:
    """The computations that one calls, itself or in what was cut out of it."""
    call_graph = traces.call_graph
    calls: list[HloComputation] = []
    for instruction in call_graph.post_order(caller):
        for callee in instruction.called_computations:
            if instruction.opcode in _CUT_OUT:
                calls += call_graph.callees[callee]
            else:
                calls.append(callee)
    return [callee for callee in calls if not call_graph.is_fused(callee)]


def is_own(trace: Trace) -> bool:
    """True if the program came with it."""
    return not trace.is_fused and not trace.is_derived and not is_partitioned(trace)


def is_partitioned(trace: Trace) -> bool:
    """True if the partitioner made it of one of the program's own."""
    return trace.name.endswith(PARTITIONED)


def is_fused(trace: Trace) -> bool:
    return trace.is_fused


def is_clone(trace: Trace) -> bool:
    """True if a pass copied another one."""
    return trace.is_clone


def is_derived(trace: Trace) -> bool:
    """True if a pass made it, of another one or from scratch."""
    return trace.is_derived


def is_promoted(trace: Trace) -> bool:
    """True if `AllReducePromotion` made it."""
    return "_promoted" in trace.name


def is_top_k_comparator(trace: Trace) -> bool:
    """True if `TopkDecomposer` made it, or the original of it."""
    return trace.name.startswith(TOP_K_COMPARATOR)


def is_first_top_k_comparator(trace: Trace) -> bool:
    """True if `TopkDecomposer` made it."""
    return is_top_k_comparator(trace) and not trace.is_clone


def find_wrapped(claims: Claims) -> list[Trace]:
    """Bodies around one instruction, as the program is walked through."""
    return wrapped_bodies(claims.traces)
