"""The contexts of operations that run on another core of a TPU.

An async-start hands its context on to an async-update; all such contexts lie in one allocation,
even those of operations that overlap. Once the last of them is no longer needed, other buffers may
have the allocation, one after the other. Mirrors
`FastMergeBufferAllocationsManagerForComputationsWithoutOrdering` of `service/buffer_assignment.cc`;
which buffers are contexts was read off dumps of libtpu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.quantities import Step

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.assign.allocation import BufferAllocation
    from hlomem.assign.problem import Problem

_CONTEXT = (2,)  # where in the result of an asynchronous operation


class Contexts:
    """The buffers that are contexts, and when their allocation is free."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.buffers = {
            buffer
            for buffer in _handed_on(problem)
            if problem.size_of[buffer] and not problem.color(buffer)
        }
        self._allocation: BufferAllocation | None = None
        self._free_at = Step(0)

    @property
    def is_assigned(self) -> bool:
        """Whether the contexts have their allocation."""
        return self._allocation is not None

    def by_size(self) -> list[HloBuffer]:
        """The contexts, the largest first."""
        size_of = self._problem.size_of
        return sorted(self.buffers, key=lambda buffer: (-size_of[buffer], buffer.id))

    def assign(self, allocation: BufferAllocation) -> None:
        """Note the allocation of all the contexts."""
        self._allocation = allocation
        self._free_at = max(map(self._problem.last_end, self.buffers))

    def free_allocation(self, buffer: HloBuffer) -> BufferAllocation | None:
        """The allocation of the contexts, if a buffer fits in and begins after they end.

        XLA asks all allocations with a result, too, none of which is ever free.
        """
        allocation = self._allocation
        if (
            allocation is not None
            and self._free_at <= self._problem.first_start(buffer)
            and allocation.size >= self._problem.size_of[buffer]
        ):
            return allocation
        return None

    def note_reuse(self, allocation: BufferAllocation, buffer: HloBuffer) -> None:
        """Note that a buffer was placed, perhaps in the allocation of the contexts."""
        if allocation is self._allocation:
            self._free_at = self._problem.last_end(buffer)


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
