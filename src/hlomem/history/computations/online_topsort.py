"""A topological order that is kept up to date as nodes and edges are added.

Mirrors `xla/online_topsort.h` (Bender, Fineman, Gilbert, Tarjan: A new approach to incremental
cycle detection and related problems, 2015) step by step: value ids depend on which order comes out.
Nodes lie in levels; within a level, what was touched last comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class OnlineTopologicalSort:
    """Nodes in an order in which every edge points forward."""

    def __init__(self, delta: int = 0, edge_count: int = 0) -> None:
        """`delta` is how far a search went already, because of nodes that are gone.

        `edge_count` is how many edges they had.
        """
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
        """The nodes, last first."""
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
