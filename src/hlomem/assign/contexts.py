"""The contexts of operations on another core of a TPU, which an async-start passes to an update.

When its operation is done, a context's allocation is free for any buffer but a result of the
program; a buffer gets the smallest sufficient one. A context may also share the allocation of one
that is in use, since the core runs one operation at a time. Mirrors
`FastMergeBufferAllocationsManagerForComputationsWithoutOrdering` of `service/buffer_assignment.cc`;
which buffers are contexts, and that they may overlap, is inferred from dumps of libtpu.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from hlomem.base.quantities import MAIN_MEMORY, AllocationIndex, Step

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.assign.allocation import BufferAllocation
    from hlomem.assign.problem import Problem

_CONTEXT = (2,)  # index in the result of an asynchronous operation


class Contexts:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.buffers = {
            buffer
            for buffer in _passed_contexts(problem)
            if problem.size_of[buffer] and problem.color(buffer) == MAIN_MEMORY
        }
        self.values = {value for buffer in self.buffers for value in buffer.values}
        self.allocations: dict[AllocationIndex, BufferAllocation] = {}
        self._in_use: list[tuple[Step, AllocationIndex]] = []
        self._free: set[AllocationIndex] = set()

    def free(self, buffer: HloBuffer) -> list[BufferAllocation]:
        """Sufficient allocations free when a buffer begins, small first; a result's never is."""
        if not self.allocations:
            return []
        start = self._problem.first_start(buffer)
        while self._in_use and self._in_use[0][0] <= start:
            self._free.add(heappop(self._in_use)[1])
        if buffer in self._problem.aliasing.live_out:
            return []
        return [found for found in self.large_enough(buffer) if found.index in self._free]

    def large_enough(self, buffer: HloBuffer) -> list[BufferAllocation]:
        """The sufficient allocations of contexts, small ones first."""
        size = self._problem.size_of[buffer]
        found = [allocation for allocation in self.allocations.values() if allocation.size >= size]
        return sorted(found, key=lambda allocation: (allocation.size, allocation.index))

    def note_use(self, allocation: BufferAllocation, buffer: HloBuffer) -> None:
        """Record the use of an allocation, if it is that of a context."""
        if allocation.index in self.allocations:
            self._free.discard(allocation.index)
            range_of = self._problem.live_ranges.range_of
            last_end = max(range_of[value].end for value in buffer.values)
            heappush(self._in_use, (last_end, allocation.index))


def _passed_contexts(problem: Problem) -> set[HloBuffer]:
    """The first parts of contexts that an async-start passes to an async-update."""
    sets, buffer_of = problem.dataflow.value_sets, problem.aliasing.buffer_of
    return {
        buffer_of[value]
        for update in problem.timeless.async_updates
        for part in sets[update]
        for value in part
        if value.instruction is update
        and value.index[:1] == _CONTEXT
        and not any(value.index[1:])
        and not value.shape.is_tuple
    }
