"""The contexts of operations that run on another core of a TPU.

An async-start hands its context on to an async-update, with which the operation can run. From then
on a later one may have the place of the context, since that core runs one operation at a time; any
other buffer may have it when the operation is done, but no result of the program. Of all places
that are free and large enough the smallest is taken; a context for which there is none gets a new
one. Mirrors `FastMergeBufferAllocationsManagerForComputationsWithoutOrdering` of
`service/buffer_assignment.cc`; which buffers are contexts, and from when on they share their place,
was read off dumps of libtpu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.values import HloValue
    from hlomem.assign.allocation import BufferAllocation
    from hlomem.assign.problem import Problem
    from hlomem.base.quantities import Step

_CONTEXT = (2,)  # where in the result of an asynchronous operation


class Contexts:
    """The buffers that are contexts, their allocations, and when these are free."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.buffers = {
            buffer
            for buffer in _handed_on(problem)
            if problem.size_of[buffer] and not problem.color(buffer)
        }
        self._free_at: dict[BufferAllocation, Step] = {}
        self._free_for_contexts_at: dict[BufferAllocation, Step] = {}

    def free(self, buffer: HloBuffer) -> list[BufferAllocation]:
        """The allocations that are free as a buffer begins and large enough, small ones first.

        XLA asks all allocations with a result, too, none of which is ever free.
        """
        if not self._free_at or buffer in self._problem.aliasing.live_out:
            return []
        start, size = self._problem.first_start(buffer), self._problem.size_of[buffer]
        times = self._free_for_contexts_at if buffer in self.buffers else self._free_at
        found = [
            allocation
            for allocation, free_at in times.items()
            if free_at <= start and allocation.size >= size
        ]
        return sorted(found, key=lambda allocation: (allocation.size, allocation.index))

    def note_context(self, allocation: BufferAllocation, context: HloBuffer) -> None:
        """Note where a context was placed."""
        end = self._problem.last_end(context)
        self._free_at[allocation] = max(end, self._free_at.get(allocation, end))
        range_of = self._problem.live_ranges.range_of
        self._free_for_contexts_at[allocation] = max(range_of[v].start for v in context.values)

    def note_reuse(self, allocation: BufferAllocation, buffer: HloBuffer) -> None:
        """Note that a buffer was placed, perhaps in the allocation of a context."""
        if allocation in self._free_at:
            end = self._problem.last_end(buffer)
            self._free_at[allocation] = self._free_for_contexts_at[allocation] = end


def _handed_on(problem: Problem) -> set[HloBuffer]:
    """The first parts of contexts that an async-start hands on to an async-update."""
    sets, buffer_of = problem.dataflow.value_sets, problem.aliasing.buffer_of
    updates = [instruction for instruction in sets if instruction.opcode == "async-update"]
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
