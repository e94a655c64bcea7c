"""Walks through the program as the passes take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.ir import HloInstruction
from hlomem.hlo.opcodes import RUN_IN_PLACE

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace, Traces
    from hlomem.hlo.ir import HloComputation

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
