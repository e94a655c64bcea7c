"""The smallest heap within an effort, or one that fits a capacity.

Given heaps, skyline and best fit come first; if they do not reach the lower bound or the capacity,
the exact search follows, then optionally CP-SAT.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from hlomem.packer.buffers import Buffer, Packing, Status, height_of, in_order
from hlomem.packer.decide import Decision, decide
from hlomem.packer.instance import Instance
from hlomem.packer.second_opinion import ask_cp_sat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Offsets = Mapping[int | str, int]
    Heap = Callable[[Sequence[Buffer]], Offsets]
    Key = Callable[[int], int]

DEFAULT_EFFORT = 200_000
MAX_MEETINGS = 4_000_000
"""Overlapping pairs of buffers; with more, only one method is tried."""
_FIRST_SHARE = 2
"""Each try may take one part in so many of the remaining effort."""


def solve(
    buffers: Iterable[Buffer],
    *,
    capacity: int | None = None,
    effort: int = DEFAULT_EFFORT,
    second_opinion: bool = False,
    heaps: Mapping[str, Heap] | None = None,
) -> Packing:
    """A packing that fits `capacity`, or the lowest one found."""
    solver = _Solver(in_order(buffers), effort)
    goal = solver.lower_bound if capacity is None else max(capacity, solver.lower_bound)
    solver.try_simple(goal, heaps or {})
    if solver.height > goal:
        if capacity is None:
            solver.minimise()
        elif capacity >= solver.lower_bound:
            solver.decide(capacity, effort)
    if second_opinion and not solver.is_settled(capacity):
        solver.ask(capacity)
    return solver.result(capacity)


class _Solver:
    def __init__(self, buffers: Sequence[Buffer], effort: int) -> None:
        self._buffers = buffers
        self._instance = Instance([buffer for buffer in buffers if buffer.size])
        self._effort = effort
        self._steps = 0
        self._offset_of: Offsets = {}
        self._method = ""
        self.load = self.lower_bound = self._instance.lower_bound
        self.height = 0

    def try_simple(self, goal: int, heaps: Mapping[str, Heap]) -> None:
        """Heaps, skyline and best fit, until the goal is reached."""
        for method, offset_of in self._simple(heaps):
            self._offer(offset_of, method)
            if self.height <= goal:
                break

    def _simple(self, heaps: Mapping[str, Heap]) -> Iterator[tuple[str, Offsets]]:
        instance = self._instance
        for name, heap in heaps.items():
            yield name, heap(self._buffers)
        is_large = instance.meetings > MAX_MEETINGS
        if is_large and heaps:
            return
        for name, key in skyline_keys(instance).items():
            yield f"skyline by {name}", self._named(place_by_skyline(instance, key))
            if is_large:
                return
        for name, key in best_fit_keys(instance).items():
            yield f"best fit by {name}", self._named(place_by_best_fit(instance, key))

    def _named(self, offsets: Sequence[int]) -> Offsets:
        """Offsets in bytes by id; empty buffers are at 0."""
        instance = self._instance
        offset_of = {buffer.id: 0 for buffer in self._buffers}
        for buffer, offset in zip(instance.buffers, offsets, strict=True):
            offset_of[buffer.id] = offset * instance.unit
        return offset_of

    def _offer(self, offset_of: Offsets, method: str) -> None:
        height = height_of(self._buffers, offset_of)
        if not self._method or height < self.height:
            self.height, self._offset_of, self._method = height, offset_of, method

    def decide(self, capacity: int, steps: int) -> Decision:
        """Decide whether the buffers fit; improves the packing or the bound."""
        decision = decide(self._instance, capacity, steps)
        self._steps += decision.steps
        if decision.outcome == "fits":
            self._offer(self._named(decision.offsets), f"search by {decision.strategy}")
        elif decision.outcome == "does not fit":
            self.lower_bound = max(self.lower_bound, self._instance.next_height(capacity))
        return decision

    def minimise(self) -> None:
        """Try the lower bound, then heights between open and found ones."""
        capacity = open_from = self.lower_bound
        while self.height > self.lower_bound and open_from < self.height:
            share = (self._effort - self._steps) // _FIRST_SHARE
            decision = self.decide(capacity, share)
            if decision.outcome == "unknown" and not decision.steps:
                break  # too little effort is left
            if decision.outcome != "fits":
                open_from = self._instance.next_height(capacity)
            capacity = (open_from + self.height - 1) // 2

    def ask(self, capacity: int | None) -> None:
        opinion = ask_cp_sat(self._instance, capacity, self.lower_bound, self.height, self._effort)
        if opinion.offsets:
            self._offer(self._named(opinion.offsets), "CP-SAT")
        self.lower_bound = max(self.lower_bound, opinion.lower_bound)

    def is_settled(self, capacity: int | None) -> bool:
        if capacity is None:
            return self.height <= self.lower_bound
        return self.height <= capacity or capacity < self.lower_bound

    def result(self, capacity: int | None) -> Packing:
        status: Status = "at the bound" if self.height <= self.load else "proven optimal"
        if capacity is not None:
            status = "fits" if self.height <= capacity else "proven not to fit"
        if not self.is_settled(capacity):
            status = "unknown within effort"
        bound, offset_of = self.lower_bound, self._offset_of
        return Packing(status, self.height, bound, offset_of, self._method, self._steps)


def skyline_keys(instance: Instance) -> dict[str, Key]:
    """Orders among buffers with equal offsets."""
    size, width, ranges = instance.size, instance.width, instance.ranges
    return {
        "area": lambda b: -size[b] * width(b),
        "size": lambda b: -size[b],
        "width": lambda b: -width(b),
        "start": lambda b: ranges[b][0][0],
        "end": lambda b: -ranges[b][-1][1],
    }


def best_fit_keys(instance: Instance) -> dict[str, Key]:
    keys = skyline_keys(instance)
    return {name: keys[name] for name in ("size", "area", "width", "start")}


def place_by_skyline(instance: Instance, key: Key) -> list[int]:
    """The lowest possible buffer first; of several, the smallest by `key`."""
    size, alignment, ranges = instance.size, instance.alignment, instance.ranges
    offsets = [0] * instance.count
    floors = [0] * instance.section_count
    # Entries may be outdated, since floors rise.
    waiting = [(0, key(b), b) for b in range(instance.count)]
    heapify(waiting)
    while waiting:
        believed, rank, b = waiting[0]
        offset = max(max(floors[first:end]) for first, end in ranges[b])
        offset = -(-offset // alignment[b]) * alignment[b]
        if offset > believed:
            heapreplace(waiting, (offset, rank, b))
            continue
        heappop(waiting)
        offsets[b] = offset
        for first, end in ranges[b]:
            floors[first:end] = [offset + size[b]] * (end - first)
    return offsets


def place_by_best_fit(instance: Instance, key: Key) -> list[int]:
    """In the order of `key`, each into the smallest sufficient gap, the lowest of equal ones."""
    size, neighbours = instance.size, instance.neighbours
    offsets = [-1] * instance.count
    for b in sorted(range(instance.count), key=lambda b: (key(b), b)):
        taken = sorted((offsets[d], offsets[d] + size[d]) for d in neighbours[b] if offsets[d] >= 0)
        fitting = [
            (room, begin)
            for begin, room in _gaps(taken, instance.alignment[b])
            if room is None or room >= size[b]
        ]
        bounded = [(room, begin) for room, begin in fitting if room is not None]
        offsets[b] = min(bounded)[1] if bounded else fitting[-1][1]
    return offsets


def _gaps(taken: list[tuple[int, int]], alignment: int) -> Iterator[tuple[int, int | None]]:
    """The possible offsets of a buffer, each with its room; the last gap is unbounded."""
    top = 0
    for begin, end in taken:
        first = -(-top // alignment) * alignment
        if begin > first:
            yield first, begin - first
        top = max(top, end)
    yield -(-top // alignment) * alignment, None
