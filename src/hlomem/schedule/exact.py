"""The least peak any order has, proven by branch and bound, for small computations.

In: a `Flow`, the best order known and a number of steps. Out: a better order where there is one,
and whether the result is proven to be the best. What is alive after some nodes have run depends on
which have run, not on their order; so a set of nodes that could not be completed need not be tried
twice. A node that is ready, fits, and leaves no more alive than before may run at once: wherever an
order has it later, moving it here keeps every moment between as full or less full.

Proven is the peak of `model.py`, which counts bytes alive: packing may add to it, and memory that
results lend may lower what the temporaries take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.schedule.model import peak_of, shared_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.schedule.flow import Flow


class Proof(NamedTuple):
    """The best order known when the search ended."""

    order: list[int]
    peak: int
    is_proven: bool
    """Whether no order has a lower peak."""


def prove(flow: Flow, order: list[int], floor: int, steps: int) -> Proof:
    """Look for an order with a lower peak until there is none or the steps are spent.

    `floor` is a bound of every peak, at which there is nothing left to look for.
    """
    best, peak = order, peak_of(flow, order).size
    search = _Search(flow, steps)
    while peak > floor:
        found = search.run(below=peak)
        if found is None:
            return Proof(best, peak, is_proven=search.steps_left > 0)
        best, peak = found, peak_of(flow, found).size
    return Proof(best, peak, is_proven=True)


class _State(NamedTuple):
    """A state of the search: what has run, and what that leaves."""

    has_run: int
    """As bits."""
    level: int
    unread: list[int]
    alive: list[int]
    waits: list[int]


class _Search:
    """Goes through sets of nodes that have run; remembers those that lead nowhere."""

    def __init__(self, flow: Flow, steps: int) -> None:
        self._flow = flow
        self.steps_left = steps
        self._dead: set[int] = set()

    def run(self, below: int) -> list[int] | None:
        """An order whose peak is below a size; None where none is found."""
        order: list[int] = []
        pending = [self._choices(self._start(), below)]
        while pending:
            choice = next(pending[-1], None)
            if choice is None:
                pending.pop()
                if order:
                    order.pop()
                continue
            node, state = choice
            order.append(node)
            if len(order) == len(self._flow.nodes):
                return order
            self.steps_left -= 1
            if self.steps_left <= 0:
                return None
            pending.append(self._choices(state, below))
        return None

    def _start(self) -> _State:
        flow = self._flow
        alive = [0] * len(flow.sizes)
        for value in flow.at_start:
            alive[flow.values[value].buffer] += 1
        level = sum(size for size, count in zip(flow.sizes, alive, strict=True) if count)
        unread = [len(value.readers) + value.lives_on for value in flow.values]
        return _State(0, level, unread, alive, [len(needed) for needed in flow.before])

    def _choices(self, state: _State, below: int) -> Iterator[tuple[int, _State]]:
        """The nodes that may run next, those that free most first; or the one that should."""
        ready = [
            node
            for node, waits in enumerate(state.waits)
            if not waits and not state.has_run >> node & 1
        ]
        fitting = []
        for node in ready:
            peak, after = self._after(state, node)
            if peak >= below or after.has_run in self._dead:
                continue
            if after.level <= state.level:
                yield node, after
                self._dead.add(state.has_run)
                return
            fitting.append((after.level, node, after))
        fitting.sort(key=lambda choice: choice[:2])
        for _, node, after in fitting:
            if after.has_run not in self._dead:
                yield node, after
        self._dead.add(state.has_run)

    def _after(self, state: _State, node: int) -> tuple[int, _State]:
        """The peak while a node runs, and the state after it."""
        flow, level = self._flow, state.level
        unread, alive, waits = state.unread.copy(), state.alive.copy(), state.waits.copy()
        saved = shared_bytes(flow, node, unread) if node in flow.shares else 0
        for value in flow.made_by[node]:
            buffer = flow.values[value].buffer
            level += 0 if alive[buffer] else flow.sizes[buffer]
            alive[buffer] += 1
        peak = level - saved + flow.inner.get(node, 0)
        peak -= sum(
            flow.sizes[buffer] for buffer in flow.counted_inside.get(node, ()) if alive[buffer]
        )
        for value in flow.read_by[node]:
            unread[value] -= 1
        for value in (*flow.read_by[node], *flow.made_by[node]):
            if not unread[value]:
                buffer = flow.values[value].buffer
                alive[buffer] -= 1
                level -= 0 if alive[buffer] else flow.sizes[buffer]
        for follower in flow.after[node]:
            waits[follower] -= 1
        return peak, _State(state.has_run | 1 << node, level, unread, alive, waits)
