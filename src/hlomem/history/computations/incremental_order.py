"""The order in which XLA keeps computations, replayed from the order in which they were made.

The result is `HloModule::MakeComputationPostOrder`, as the incremental sort left it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.history.computations.online_topsort import OnlineTopologicalSort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation


class Vanished(NamedTuple):
    """Computations that existed for a while; created consecutively, all gone now."""

    older_count: int
    """The number of others that had been made before."""
    callers: Sequence[HloComputation]
    """The caller of each."""


NONE_VANISHED = Vanished(0, ())


def sorted_incrementally(
    created: Sequence[HloComputation],
    call_graph: CallGraph,
    count: int | None = None,
    delta: int = 0,
    lost_calls: int = 0,
    vanished: Vanished = NONE_VANISHED,
) -> list[HloComputation]:
    """Replay how computations were made and called (`HloModule::AddComputationInternal`).

    With a `count`, how they lay when the first so many had been made. `delta` starts the limit of
    the search where computations that no longer exist had pushed it, and `lost_calls` is how many
    calls there were of such, which push it as well; those that are known to have `vanished` moved
    their callers. A computation that calls only older ones was cut out of its caller, which called
    them before.
    """
    rank_of = {computation: rank for rank, computation in enumerate(created)}
    callees = _ranks_of_callees(created, rank_of, call_graph)
    callers: list[list[int]] = [[] for _ in created]
    for rank, called in enumerate(callees):
        for callee in called:
            callers[callee].append(rank)
    older_callers = _older_callers(callers)
    kept = _callees_cut_out(created, callees, call_graph)
    order = OnlineTopologicalSort(delta, lost_calls)
    node_of: list[int] = []
    gone = [rank_of[caller] for caller in vanished.callers]
    for rank in range(len(created))[:count]:
        if rank == vanished.older_count:
            _add_vanished(order, gone, node_of)
        node = order.add_node([node_of[caller] for caller in older_callers[rank]])
        node_of.append(node)
        for callee in kept[rank]:
            order.add_edge(node, node_of[callee])
        for callee in callees[rank]:
            if callee < rank:
                order.add_edge(node, node_of[callee])
                for caller in callers[rank]:
                    if caller < rank and caller not in callers[callee]:
                        order.remove_edge(node_of[caller], node_of[callee])
    if vanished.older_count == len(created):
        _add_vanished(order, gone, node_of)
    computation_at = dict(zip(node_of, created, strict=False))
    nodes = order.reverse_order()
    return [computation_at[node] for node in nodes if node in computation_at]


def _add_vanished(order: OnlineTopologicalSort, callers: list[int], node_of: list[int]) -> None:
    for caller in callers:
        order.add_node([node_of[caller]])


def _ranks_of_callees(
    created: Sequence[HloComputation], rank_of: Mapping[HloComputation, int], call_graph: CallGraph
) -> list[list[int]]:
    """The callees of each computation, the oldest first; a rank is a place in the order of age."""
    none: list[int] = []
    return [
        sorted([rank_of[callee] for callee in called]) if called else none
        for called in map(call_graph.callees.__getitem__, created)
    ]


def _callees_cut_out(
    created: Sequence[HloComputation], callees: list[list[int]], call_graph: CallGraph
) -> list[list[int]]:
    """The older computations that each one called itself until a call of them was cut out of it."""
    is_fused, callsites = call_graph.is_fused, call_graph.callsites
    is_cut_out = [
        is_fused(computation) or "call" in [site.opcode for site in callsites[computation]]
        for computation in created
    ]
    none: list[int] = []
    kept: list[list[int]] = []
    for rank, called in enumerate(callees):
        if not called or called[-1] < rank:
            kept.append(none)
            continue
        found: dict[int, None] = {}
        pending = [callee for callee in called if callee > rank and is_cut_out[callee]]
        while pending:
            for callee in callees[pending.pop()]:
                if callee < rank:
                    found[callee] = None
                elif is_cut_out[callee]:
                    pending.append(callee)
        kept.append(sorted(found))
    return kept


def _older_callers(callers: list[list[int]]) -> list[list[int]]:
    """The callers of each computation before any younger one was there; callers are given by age.

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
