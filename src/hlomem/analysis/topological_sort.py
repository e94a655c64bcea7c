"""A topological order that is kept up to date as nodes and edges are added.

Mirrors `xla/online_topsort.h`, which keeps the computations of a module sorted and implements
Bender, Fineman, Gilbert, Tarjan: A new approach to incremental cycle detection and related
problems (2015). Which of the many topological orders comes out depends on the order in which nodes
and edges were added, and value ids depend on it, so every step is followed.

Nodes lie in levels; within a level, what was touched last comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    Node = TypeVar("Node", bound=Hashable)
else:
    Node = TypeVar("Node")


class OnlineTopologicalSort(Generic[Node]):
    """Nodes in an order in which every edge points forward."""

    def __init__(self, delta: int = 0) -> None:
        """`delta` is how far a search went already, because of nodes that are gone."""
        self._level: dict[Node, int] = {}
        self._index: dict[Node, int] = {}  # within the level
        self._rank: dict[Node, int] = {}  # order of adding; neighbours are visited by it
        self._predecessors: dict[Node, set[Node]] = {}
        self._successors: dict[Node, set[Node]] = {}
        self._next_index = 0
        self._edge_count = 0
        self._delta = delta

    def add_node(self, node: Node) -> None:
        """Add a node without edges; it comes first."""
        self._rank[node] = len(self._rank)
        self._level[node] = 0
        self._predecessors[node] = set()
        self._successors[node] = set()
        self._move_to_front(node)
        self._update_delta()

    def add_edge(self, source: Node, target: Node) -> None:
        """Add an edge and repair the order."""
        self._successors[source].add(target)
        self._predecessors[target].add(source)
        self._edge_count += 1
        self._update_delta()
        level, index = self._level, self._index
        rise = level[target] - level[source]
        if rise > 0 or (rise == 0 and index[source] < index[target]):
            return
        if rise == 0 and not self._predecessors[source]:
            self._move_to_front(source)  # what the search would find
            return
        before = self._search_backwards(source)
        after: list[Node] = []
        if before is None:
            before = [source]
            level[target] = level[source] + 1
            after = self._search_forwards(target)
        elif level[target] != level[source]:
            level[target] = level[source]
            after = self._search_forwards(target)
        if level[source] < level[target]:
            before = []
        for node in (*after, *reversed(before)):
            self._move_to_front(node)

    def remove_edge(self, source: Node, target: Node) -> None:
        """Remove an edge, if it is there; the order stays as it is."""
        self._successors[source].discard(target)
        self._predecessors[target].discard(source)

    def reverse_order(self) -> list[Node]:
        """The nodes, last first."""
        level, index = self._level, self._index
        return sorted(level, key=lambda node: (level[node], index[node]), reverse=True)

    def _move_to_front(self, node: Node) -> None:
        self._index[node] = self._next_index
        self._next_index -= 1

    def _update_delta(self) -> None:
        """Keep delta at ceil(min(m ** 1/2, n ** 2/3)) for n nodes and m edges ever added."""
        node_count = len(self._level)
        while self._delta**2 < self._edge_count and self._delta**3 < node_count**2:
            self._delta += 1

    def _by_rank(self, nodes: Iterable[Node]) -> list[Node]:
        return sorted(nodes, key=self._rank.__getitem__)

    def _search_backwards(self, node: Node) -> list[Node] | None:
        """What leads to a node within its level, sources first; None after `delta` edges."""
        found: list[Node] = []
        visited: set[Node] = set()
        edge_count = 0
        pending = [(node, False)]
        while pending:
            current, is_done = pending.pop()
            if is_done:
                found.append(current)
                continue
            if current in visited:
                continue
            visited.add(current)
            pending.append((current, True))
            for predecessor in self._by_rank(self._predecessors[current]):
                if self._level[predecessor] == self._level[current]:
                    edge_count += 1
                    if edge_count >= self._delta:
                        return None
                    pending.append((predecessor, False))
        return found

    def _search_forwards(self, node: Node) -> list[Node]:
        """What must rise with a node to its level, targets first."""
        found: list[Node] = []
        visited: set[Node] = set()
        risen = {node}
        pending = [(node, False)]
        level = self._level
        while pending:
            current, is_done = pending.pop()
            if is_done:
                found.append(current)
                continue
            if current in visited or current not in risen:
                continue
            visited.add(current)
            pending.append((current, True))
            for successor in self._by_rank(self._successors[current]):
                pending.append((successor, False))
                if level[current] > level[successor]:
                    level[successor] = level[current]
                    risen.add(successor)
        return found
