"""The cheapest cut of a network, by blocking flows (Dinic); nothing recurses."""

from __future__ import annotations

from collections import deque

UNCUT = 1 << 62
"""The capacity of an edge that is in no cut."""


class Network:
    """Nodes and edges, the latter in pairs: one there, one back."""

    def __init__(self, count: int) -> None:
        self._edges: list[list[int]] = [[] for _ in range(count)]
        self._target: list[int] = []
        self._left: list[int] = []

    def connect(self, start: int, end: int, capacity: int) -> int:
        """The number of the new edge."""
        for one, other, room in ((start, end, capacity), (end, start, 0)):
            self._edges[one].append(len(self._target))
            self._target.append(other)
            self._left.append(room)
        return len(self._target) - 2

    def resize(self, edge: int, capacity: int) -> bool:
        """Give an edge another capacity, unless more than that is sent over it."""
        sent = self._left[edge ^ 1]
        if sent <= capacity:
            self._left[edge] = capacity - sent
        return sent <= capacity

    def source_side(self, source: int, sink: int) -> set[int]:
        while True:
            levels = self._levels(source)
            if sink not in levels:
                return set(levels)
            self._fill(source, sink, levels)

    def _levels(self, source: int) -> dict[int, int]:
        """By node that can be reached: over how many edges."""
        levels = {source: 0}
        pending = deque([source])
        while pending:
            node = pending.popleft()
            for edge in self._edges[node]:
                target = self._target[edge]
                if self._left[edge] > 0 and target not in levels:
                    levels[target] = levels[node] + 1
                    pending.append(target)
        return levels

    def _fill(self, source: int, sink: int, levels: dict[int, int]) -> None:
        """Send what goes over shortest ways, until each has a full edge."""
        tried = dict.fromkeys(levels, 0)
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                self._send(path)
                node, path = source, []
                continue
            edge = self._next(node, levels, tried)
            if edge is not None:
                path.append(edge)
                node = self._target[edge]
            elif not path:
                return
            else:
                node = self._target[path.pop() ^ 1]
                tried[node] += 1

    def _next(self, node: int, levels: dict[int, int], tried: dict[int, int]) -> int | None:
        """The next edge of a node that leads on and is not full."""
        edges = self._edges[node]
        while tried[node] < len(edges):
            edge = edges[tried[node]]
            target = self._target[edge]
            if self._left[edge] > 0 and levels.get(target) == levels[node] + 1:
                return edge
            tried[node] += 1
        return None

    def _send(self, path: list[int]) -> None:
        amount = min(self._left[edge] for edge in path)
        for edge in path:
            self._left[edge] -= amount
            self._left[edge ^ 1] += amount
