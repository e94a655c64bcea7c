"""The order in which XLA keeps computations, replayed from the order in which they were made.

In: the computations of a module, the oldest first. Out: `HloModule::MakeComputationPostOrder`,
callees before callers, as the incremental sort left it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.topological_sort import OnlineTopologicalSort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation


def sorted_incrementally(
    created: Sequence[HloComputation],
    call_graph: CallGraph,
    count: int | None = None,
    delta: int = 0,
) -> list[HloComputation]:
    """Replay how computations were made and called (`HloModule::AddComputationInternal`).

    With a `count`, how they lay when the first so many had been made. `delta` is how far searches
    went already, because of computations that are gone. A computation that calls only older ones
    was cut out of its caller, which called them before.
    """
    callees = _ranks_of_callees(created, call_graph)
    callers: list[list[int]] = [[] for _ in created]
    for rank, called in enumerate(callees):
        for callee in called:
            callers[callee].append(rank)
    older_callers = _older_callers(callers)
    order: OnlineTopologicalSort[int] = OnlineTopologicalSort(delta)
    for rank in range(len(created))[:count]:
        order.add_node(rank)
        for caller in older_callers[rank]:
            order.add_edge(caller, rank)
        for callee in callees[rank]:
            if callee < rank:
                order.add_edge(rank, callee)
                for caller in callers[rank]:
                    if caller < rank and caller not in callers[callee]:
                        order.remove_edge(caller, callee)
    return [created[rank] for rank in order.reverse_order()]


def _ranks_of_callees(created: Sequence[HloComputation], call_graph: CallGraph) -> list[list[int]]:
    """What each computation calls, the oldest first; a rank is a place in the order of age."""
    rank_of = {computation: rank for rank, computation in enumerate(created)}
    callees = [call_graph.callees[computation] for computation in created]
    return [sorted([rank_of[callee] for callee in called]) if called else [] for called in callees]


def _older_callers(callers: list[list[int]]) -> list[list[int]]:
    """Who called each computation before any younger one was there; callers are given by age.

    A younger caller stands for its own older callers, which are known: the youngest come first.
    """
    older_callers = callers[:]
    for rank in range(len(callers) - 1, -1, -1):
        direct = callers[rank]
        if not direct or direct[-1] < rank:
            continue
        found: dict[int, None] = {}
        younger: set[int] = set()
        pending = direct[::-1]
        while pending:
            caller = pending.pop()
            if caller < rank:
                found[caller] = None
            elif caller not in younger:
                younger.add(caller)
                pending += reversed(older_callers[caller])
        older_callers[rank] = list(found)
    return older_callers
