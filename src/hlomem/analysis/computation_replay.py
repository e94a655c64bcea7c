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
    rank = {computation: i for i, computation in enumerate(created)}
    callers: dict[HloComputation, list[HloComputation]] = {each: [] for each in created}
    for computation in created:
        for callee in call_graph.callees[computation]:
            callers[callee].append(computation)
    older_callers = _older_callers(created, callers, rank)
    order: OnlineTopologicalSort[HloComputation] = OnlineTopologicalSort(delta)
    for computation in created[:count]:
        order.add_node(computation)
        for caller in older_callers[computation]:
            order.add_edge(caller, computation)
        callees = call_graph.callees[computation]
        if not callees:
            continue
        for callee in sorted(callees, key=rank.__getitem__):
            if rank[callee] < rank[computation]:
                order.add_edge(computation, callee)
                for caller in callers[computation]:
                    if rank[caller] < rank[computation] and caller not in callers[callee]:
                        order.remove_edge(caller, callee)
    return order.reverse_order()


def _older_callers(
    created: Sequence[HloComputation],
    callers: dict[HloComputation, list[HloComputation]],
    rank: dict[HloComputation, int],
) -> dict[HloComputation, list[HloComputation]]:
    """Who called each computation before any younger one was there.

    A younger caller stands for its own older callers, which are known: the youngest come first.
    """
    older_callers: dict[HloComputation, list[HloComputation]] = {}
    for computation in reversed(created):
        direct = callers[computation]
        if max(map(rank.__getitem__, direct), default=-1) < rank[computation]:
            older_callers[computation] = direct
            continue
        found: dict[HloComputation, None] = {}
        younger: set[HloComputation] = set()
        pending = direct[::-1]
        while pending:
            caller = pending.pop()
            if rank[caller] < rank[computation]:
                found[caller] = None
            elif caller not in younger:
                younger.add(caller)
                pending += reversed(older_callers[caller])
        older_callers[computation] = list(found)
    return older_callers
