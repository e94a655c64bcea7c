"""The contexts of operations that run on another core of a TPU.

An async-start hands its context on to an async-update. An operation that is started while the one
before it still runs gets that one's context, if it needs no more room. Otherwise it gets the
smallest place of a context that is free and large enough, or a new one. Such places serve other
buffers, too, once the operations are done, one after the other, but no result of the program.
Mirrors `FastMergeBufferAllocationsManagerForComputationsWithoutOrdering` of
`service/buffer_assignment.cc`; which buffers are contexts, and that running operations share theirs,
was read off dumps of libtpu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import HloBuffer
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
        self._latest: tuple[BufferAllocation, Step] | None = None

    def running(self, context: HloBuffer) -> BufferAllocation | None:
        """The allocation of the operation started last, if that runs and its context is enough."""
        if self._latest is None:
            return None
        allocation, end = self._latest
        is_running = self._problem.first_start(context) <= end
        return allocation if is_running and self._fits(allocation, context) else None

    def free(self, buffer: HloBuffer) -> list[BufferAllocation]:
        """The allocations that are free as a buffer begins and large enough, small ones first.

        XLA asks all allocations with a result, too, none of which is ever free.
        """
        if not self._free_at or buffer in self._problem.aliasing.live_out:
            return []
        start = self._problem.first_start(buffer)
        found = [
            allocation
            for allocation, free_at in self._free_at.items()
            if free_at <= start and self._fits(allocation, buffer)
        ]
        return sorted(found, key=lambda allocation: (allocation.size, allocation.index))

    def _fits(self, allocation: BufferAllocation, buffer: HloBuffer) -> bool:
        return allocation.size >= self._problem.size_of[buffer]

    def note_context(self, allocation: BufferAllocation, context: HloBuffer) -> None:
        """Note where a context was placed."""
        end = self._problem.last_end(context)
        self._latest = allocation, end
        self._free_at[allocation] = max(end, self._free_at.get(allocation, end))

    def note_reuse(self, allocation: BufferAllocation, buffer: HloBuffer) -> None:
        """Note that a buffer was placed, perhaps in the allocation of a context."""
        if allocation in self._free_at:
            self._free_at[allocation] = self._problem.last_end(buffer)


def _handed_on(problem: Problem) -> set[HloBuffer]:
    """The parts of contexts that an async-start hands on to an async-update."""
    sets, buffer_of = problem.dataflow.value_sets, problem.aliasing.buffer_of
    updates = [instruction for instruction in sets if instruction.opcode == "async-update"]
    return {
        buffer_of[value]
        for update in updates
        for part in sets[update]
        for value in part
        if value.instruction is update and value.index[:1] == _CONTEXT and not value.shape.is_tuple
    }
