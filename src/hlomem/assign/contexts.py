"""The contexts of operations that run on another core of a TPU.

An async-start hands its context on to an async-update. The place of a context is free when its
operation is done: then any buffer may have it, but no result of the program, and of all free places
that are large enough a buffer gets the smallest. A context for which there is none gets the place
of another even if that one's operation still runs, since that core runs one at a time; or else a
new one. Mirrors `FastMergeBufferAllocationsManagerForComputationsWithoutOrdering` of
`service/buffer_assignment.cc`; which buffers are contexts, and that they do not mind one another,
was read off dumps of libtpu.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from hlomem.base.quantities import MAIN_MEMORY

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.values import HloValue
    from hlomem.assign.allocation import BufferAllocation
    from hlomem.assign.problem import Problem
    from hlomem.base.quantities import AllocationIndex, Step

_CONTEXT = (2,)  # where in the result of an asynchronous operation


class Contexts:
    """The buffers that are contexts, their allocations, and when these are free."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.buffers = {
            buffer
            for buffer in _handed_on(problem)
            if problem.size_of[buffer] and problem.color(buffer) == MAIN_MEMORY
        }
        self.values = {value for buffer in self.buffers for value in buffer.values}
        self._places: dict[AllocationIndex, BufferAllocation] = {}
        self._in_use: list[tuple[Step, AllocationIndex]] = []
        self._free: set[AllocationIndex] = set()

    def free(self, buffer: HloBuffer) -> list[BufferAllocation]:
        """The allocations that are free as a buffer begins and large enough, small ones first.

        XLA asks all allocations with a result, too, none of which is ever free.
        """
        if not self._places:
            return []
        start = self._problem.first_start(buffer)
        while self._in_use and self._in_use[0][0] <= start:
            self._free.add(heappop(self._in_use)[1])
        if buffer in self._problem.aliasing.live_out:
            return []
        return [place for place in self.large_enough(buffer) if place.index in self._free]

    def large_enough(self, buffer: HloBuffer) -> list[BufferAllocation]:
        """The allocations of contexts that a buffer fits into, small ones first."""
        size = self._problem.size_of[buffer]
        found = [place for place in self._places.values() if place.size >= size]
        return sorted(found, key=lambda place: (place.size, place.index))

    def add_place(self, allocation: BufferAllocation) -> None:
        """Note a new allocation for contexts."""
        self._places[allocation.index] = allocation

    def note_use(self, allocation: BufferAllocation, buffer: HloBuffer) -> None:
        """Note that a buffer was placed, perhaps in the allocation of a context."""
        if allocation.index in self._places:
            self._free.discard(allocation.index)
            heappush(self._in_use, (self._problem.last_end(buffer), allocation.index))


def _handed_on(problem: Problem) -> set[HloBuffer]:
    """The first parts of contexts that an async-start hands on to an async-update."""
    sets, buffer_of = problem.dataflow.value_sets, problem.aliasing.buffer_of
    updates = problem.timeless.async_updates
    return {
        buffer_of[value]
        for update in updates
        for part in sets[update]
        for value in part
        if value.instruction is update and _is_first_part(value)
    }


def _is_first_part(value: HloValue) -> bool:
    is_in_context = value.index[:1] == _CONTEXT and not value.shape.is_tuple
    return is_in_context and not any(value.index[1:])
