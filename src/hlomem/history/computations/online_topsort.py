"""A topological order that is kept up to date as nodes and edges are added.

Mirrors `xla/online_topsort.h`, which keeps the computations of a module sorted and implements
Bender, Fineman, Gilbert, Tarjan: A new approach to incremental cycle detection and related
problems (2015). Which of the many topological orders comes out depends on the order in which nodes
and edges were added, and value ids depend on it, so every step is followed.

Nodes lie in levels; within a level, what was touched last comes first.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Hashable

    Node = TypeVar("Node", bound=Hashable)
else:
    Node = TypeVar("Node")


class _Place(Struct, Generic[Node], eq=False):
    """The place of a node."""

    node: Node
    rank: int
    """The order of adding; neighbours are visited by it."""
    index: int
    """Within the level."""
    level: int = 0
    predecessors: set[_Place[Node]] = set()
    successors: set[_Place[Node]] = set()


_RANK = attrgetter("rank")
_ORDER = attrgetter("level", "index")


class OnlineTopologicalSort(Generic[Node]):
    """Nodes in an order in which every edge points forward."""

    def __init__(self, delta: int = 0, edge_count: int = 0) -> None:
        """`delta` is how far a search went already, because of nodes that are gone.

        `edge_count` is how many edges they had.
        """
        self._place_of: dict[Node, _Place[Node]] = {}
        self._next_index = 0
        self._edge_count = edge_count
        self._delta = delta

    def add_node(self, node: Node) -> None:
        """Add a node without edges; it comes first."""
        self._place_of[node] = _Place(node, len(self._place_of), self._next_index)
        self._next_index -= 1

    def add_edge(self, source: Node, target: Node) -> None:
        """Add an edge and repair the order."""
        start, end = self._place_of[source], self._place_of[target]
        start.successors.add(end)
        end.predecessors.add(start)
        self._edge_count += 1
        rise = end.level - start.level
        if rise > 0 or (rise == 0 and start.index < end.index):
            return
        if rise == 0 and not start.predecessors:
            self._move_to_front(start)  # what the search would find
            return
        before = self._search_backwards(start)
        after: list[_Place[Node]] = []
        if before is None:
            before = [start]
            end.level = start.level + 1
            after = _search_forwards(end)
        elif end.level != start.level:
            end.level = start.level
            after = _search_forwards(end)
        if start.level < end.level:
            before = []
        for place in (*after, *reversed(before)):
            self._move_to_front(place)

    def remove_edge(self, source: Node, target: Node) -> None:
        """Remove an edge, if it is there; the order stays as it is."""
        start, end = self._place_of[source], self._place_of[target]
        start.successors.discard(end)
        end.predecessors.discard(start)

    def reverse_order(self) -> list[Node]:
        """The nodes, last first."""
        places = sorted(self._place_of.values(), key=_ORDER, reverse=True)
        return [place.node for place in places]

    def clear(self) -> None:
        """Forget all nodes: neighbours are cycles, which stay where no collector runs."""
        for place in self._place_of.values():
            place.predecessors.clear()
            place.successors.clear()
        self._place_of.clear()

    def _move_to_front(self, place: _Place[Node]) -> None:
        place.index = self._next_index
        self._next_index -= 1

    def _update_delta(self) -> None:
        """Bring delta to ceil(min(m ** 1/2, n ** 2/3)) for n nodes and m edges ever added."""
        node_count = len(self._place_of)
        while self._delta**2 < self._edge_count and self._delta**3 < node_count**2:
            self._delta += 1

    def _search_backwards(self, start: _Place[Node]) -> list[_Place[Node]] | None:
        """The nodes that lead to one within its level, sources first; None after `delta` edges."""
        self._update_delta()
        found: list[_Place[Node]] = []
        visited: set[_Place[Node]] = set()
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
            for predecessor in sorted(current.predecessors, key=_RANK):
                if predecessor.level == current.level:
                    edge_count += 1
                    if edge_count >= self._delta:
                        return None
                    pending.append((predecessor, False))
        return found


def _search_forwards(end: _Place[Node]) -> list[_Place[Node]]:
    """The nodes that must rise with a node to its level, targets first."""
    found: list[_Place[Node]] = []
    visited: set[_Place[Node]] = set()
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
        for successor in sorted(current.successors, key=_RANK):
            pending.append((successor, False))
            if current.level > successor.level:
                successor.level = current.level
                risen.add(successor)
    return found
