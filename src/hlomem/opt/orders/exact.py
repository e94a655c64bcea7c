"""The least peak any order has, proven by branch and bound, for small computations.

Bytes alive depend on which nodes have run, not on their order: a set that could not be completed is
not tried twice. A node that fits and leaves no more alive than before may run at once. Proven is
the peak of `model.py`: packing may add to it, and memory that results lend may lower it.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.orders.model import peak_of, shared_bytes

if TYPE_CHECKING:
    from hlomem.opt.orders.flow import Flow


class Proof(NamedTuple):
    """The best order known when the search ended."""

    order: list[int]
    peak: int
    is_proven: bool
    """Whether no order has a lower peak."""


def prove(flow: Flow, order: list[int], floor: int, steps: int) -> Proof:
    """Look for an order with a lower peak until it is at `floor` or the steps are spent."""
    best, peak = order, peak_of(flow, order)
    search = _Search(flow, steps)
    while peak > floor:
        found = search.run(below=peak)
        if found is None:
            return Proof(best, peak, is_proven=search.steps_left > 0)
        best, peak = found, peak_of(flow, found)
    return Proof(best, peak, is_proven=True)


class _Search:
    """Goes through sets of nodes that have run; remembers those that lead nowhere."""

    def __init__(self, flow: Flow, steps: int) -> None:
        self._flow = flow
        self.steps_left = steps
        self._dead: set[int] = set()

    def run(self, below: int) -> list[int] | None:
        """An order whose peak is below a size; None where none is found."""
        state = _State(self._flow)
        pending = [iter(self._choices(state, below))]
        while pending:
            node = next(pending[-1], None)
            if node is None:
                self._dead.add(state.has_run)
                pending.pop()
                if pending:
                    state.take_back()
                continue
            if state.has_run | 1 << node in self._dead:
                continue
            state.run(node)
            if len(state.order) == len(self._flow.nodes):
                return state.order
            self.steps_left -= 1
            if self.steps_left <= 0:
                return None
            pending.append(iter(self._choices(state, below)))
        return None

    def _choices(self, state: _State, below: int) -> list[int]:
        """The nodes that may run next, those that free most first; or the one that should."""
        fitting = []
        for node in state.ready:
            if state.has_run | 1 << node in self._dead:
                continue
            peak, level = state.look(node)
            if peak >= below:
                continue
            if level <= state.level:
                return [node]
            fitting.append((level, node))
        return [node for _, node in sorted(fitting)]


class _State:
    """The nodes that have run, and the memory then in use; takes nodes back, the last first."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self.order: list[int] = []
        self.has_run = 0
        """As bits."""
        self._unread = [len(value.readers) + value.lives_on for value in flow.values]
        self._alive = [0] * len(flow.sizes)
        for value in flow.at_start:
            self._alive[flow.values[value].buffer] += 1
        self.level = sum(size for size, count in zip(flow.sizes, self._alive, strict=True) if count)
        self._waits = [len(needed) for needed in flow.before]
        self.ready = [node for node, waits in enumerate(self._waits) if not waits]
        self._before: list[tuple[int, list[int]]] = []  # level and ready, before each that has run

    def look(self, node: int) -> tuple[int, int]:
        """The bytes in use while a node runs, and those in use after it."""
        level = self.level
        peak = self._enter(node)
        after = self._leave(node)
        self._revert(node)
        self.level = level
        return peak, after

    def run(self, node: int) -> None:
        self._before.append((self.level, self.ready))
        self._enter(node)
        self._leave(node)
        self.order.append(node)
        self.has_run |= 1 << node
        self.ready = [other for other in self.ready if other != node]
        for follower in self._flow.after[node]:
            self._waits[follower] -= 1
            if not self._waits[follower]:
                insort(self.ready, follower)

    def take_back(self) -> None:
        node = self.order.pop()
        self.has_run ^= 1 << node
        for follower in self._flow.after[node]:
            self._waits[follower] += 1
        self._revert(node)
        self.level, self.ready = self._before.pop()

    def _enter(self, node: int) -> int:
        """Start a node; the bytes alive while it runs."""
        flow, alive, level = self._flow, self._alive, self.level
        saved = shared_bytes(flow, node, self._unread) if node in flow.shares else 0
        for value in flow.made_by[node]:
            buffer = flow.values[value].buffer
            level += 0 if alive[buffer] else flow.sizes[buffer]
            alive[buffer] += 1
        self.level = level
        if node in flow.inner:
            saved -= flow.inner[node]
            counted = flow.counted_inside[node]
            saved += sum(flow.sizes[buffer] for buffer in counted if alive[buffer])
        return level - saved

    def _leave(self, node: int) -> int:
        """It has run: what is left."""
        flow, alive, unread = self._flow, self._alive, self._unread
        for value in flow.read_by[node]:
            unread[value] -= 1
        for value in (*flow.read_by[node], *flow.made_by[node]):
            if not unread[value]:
                buffer = flow.values[value].buffer
                alive[buffer] -= 1
                self.level -= 0 if alive[buffer] else flow.sizes[buffer]
        return self.level

    def _revert(self, node: int) -> None:
        """Put back who is alive, and who has still to read."""
        flow, alive, unread = self._flow, self._alive, self._unread
        for value in (*flow.read_by[node], *flow.made_by[node]):
            if not unread[value]:
                alive[flow.values[value].buffer] += 1
        for value in flow.read_by[node]:
            unread[value] += 1
        for value in flow.made_by[node]:
            alive[flow.values[value].buffer] -= 1
