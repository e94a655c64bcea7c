"""The order in which XLA keeps computations, replayed from the order in which they were made.

The result is `HloModule::MakeComputationPostOrder`, as the incremental sort left it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation


class OnlineTopologicalSort:
    """Nodes in an order in which every edge points forward, kept as nodes and edges are added.

    Mirrors `xla/online_topsort.h` (Bender, Fineman, Gilbert, Tarjan: A new approach to incremental
    cycle detection and related problems, 2015) step by step: value ids depend on the outcome. Nodes
    lie in levels; within a level, what was touched last comes first.
    """

    def __init__(self, delta: int = 0, edge_count: int = 0) -> None:
        """`delta` is how far a search went for nodes that are gone, `edge_count` their edges."""
        self._level: list[int] = []
        self._index: list[int] = []  # within the level
        self._predecessors: dict[int, set[int]] = {}  # of those that have any
        self._successors: dict[int, set[int]] = {}
        self._next_index = 0
        self._edge_count = edge_count
        self._delta = delta

    def add_node(self, predecessors: Iterable[int] = ()) -> int:
        """Add a node, which comes first, and then the edges that lead to it."""
        node = len(self._level)
        self._level.append(0)
        self._index.append(self._next_index)
        self._next_index -= 1
        for predecessor in predecessors:
            self.add_edge(predecessor, node)
        return node

    def add_edge(self, start: int, end: int) -> None:
        """Add an edge and repair the order."""
        if start in self._successors:
            self._successors[start].add(end)
        else:
            self._successors[start] = {end}
        if end in self._predecessors:
            self._predecessors[end].add(start)
        else:
            self._predecessors[end] = {start}
        self._edge_count += 1
        level = self._level
        rise = level[end] - level[start]
        if rise > 0 or (rise == 0 and self._index[start] < self._index[end]):
            return
        if rise == 0 and not self._predecessors.get(start):
            self._move_to_front(start)  # what the search would find
            return
        before = self._search_backwards(start)
        after: list[int] = []
        if before is None:
            before = [start]
            level[end] = level[start] + 1
            after = self._search_forwards(end)
        elif rise:
            level[end] = level[start]
            after = self._search_forwards(end)
        if level[start] < level[end]:
            before = []
        for node in (*after, *reversed(before)):
            self._move_to_front(node)

    def remove_edge(self, start: int, end: int) -> None:
        """Remove an edge, if it is there; the order stays as it is."""
        self._successors.get(start, set()).discard(end)
        self._predecessors.get(end, set()).discard(start)

    def reverse_order(self) -> list[int]:
        places = sorted(zip(self._level, self._index, range(len(self._level)), strict=True))
        return [node for _, _, node in reversed(places)]

    def _move_to_front(self, node: int) -> None:
        self._index[node] = self._next_index
        self._next_index -= 1

    def _update_delta(self) -> None:
        """Bring delta to ceil(min(m ** 1/2, n ** 2/3)) for n nodes and m edges ever added."""
        node_count = len(self._level)
        while self._delta**2 < self._edge_count and self._delta**3 < node_count**2:
            self._delta += 1

    def _search_backwards(self, start: int) -> list[int] | None:
        """The nodes that lead to one within its level, sources first; None after `delta` edges."""
        self._update_delta()
        level = self._level
        found: list[int] = []
        visited: set[int] = set()
        edge_count = 0
        pending = [(start, False)]
        while pending:
            current, is_done = pending.pop()
            if is_done:
                found.append(current)
                continue
            if current in visited:
                continue
            visited.add(current)
            pending.append((current, True))
            for predecessor in sorted(self._predecessors.get(current, ())):
                if level[predecessor] == level[current]:
                    edge_count += 1
                    if edge_count >= self._delta:
                        return None
                    pending.append((predecessor, False))
        return found

    def _search_forwards(self, end: int) -> list[int]:
        """The nodes that must rise with a node to its level, targets first."""
        level = self._level
        found: list[int] = []
        visited: set[int] = set()
        risen = {end}
        pending = [(end, False)]
        while pending:
            current, is_done = pending.pop()
            if is_done:
                found.append(current)
                continue
            if current in visited or current not in risen:
                continue
            visited.add(current)
            pending.append((current, True))
            for successor in sorted(self._successors.get(current, ())):
                pending.append((successor, False))
                if level[current] > level[successor]:
                    level[successor] = level[current]
                    risen.add(successor)
        return found


class Vanished(NamedTuple):
    """Computations that existed for a while; created consecutively, all gone now."""

    older_count: int
    """The number of others that had been made before."""
    callers: Sequence[HloComputation]


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
