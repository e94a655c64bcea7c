"""Allocations that buffers share in turn (`MaybeAssignBuffer` of buffer_assignment.cc)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.allocation import BufferAllocation, whole
from hlomem.assign.reuse import IdleAllocations, Occupancy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.values import HloValue
    from hlomem.assign.problem import Problem
    from hlomem.hlo.ir import HloInstruction


class SharedAllocations:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._range_of = problem.live_ranges.range_of
        self._size_of = problem.size_of
        self._color_of = problem.color_of
        self._live_out = problem.aliasing.live_out
        self._sequence = problem.live_ranges.sequence
        self._sharing = problem.timeless.sharing
        self._allocation_of: dict[HloValue, BufferAllocation] = {}
        self._readers: set[HloInstruction] = set()  # of whole results in these allocations
        self._occupancy: dict[BufferAllocation, Occupancy] = {}
        self._idle = IdleAllocations(problem.live_ranges.end)
        self._reusable: list[BufferAllocation] = []
        self._number_of: dict[BufferAllocation, int] = {}

    def watch(self, allocation: BufferAllocation, buffer: HloBuffer) -> None:
        """Offer a new allocation, which holds one buffer, to users of its values."""
        self._occupancy[allocation] = Occupancy()
        self._occupy(allocation, buffer)

    def make_reusable(self, allocation: BufferAllocation) -> None:
        """Offer a watched allocation to any buffer."""
        number = self._number_of[allocation] = len(self._reusable)
        self._reusable.append(allocation)
        self._idle.register(number, [self._range_of[value] for value in allocation.slices])

    def add(self, allocation: BufferAllocation, buffer: HloBuffer) -> None:
        allocation.slices.update(dict.fromkeys(buffer.values, whole(self._size_of[buffer])))
        if buffer in self._live_out:
            allocation.maybe_live_out = True
        self._occupy(allocation, buffer)

    def _occupy(self, allocation: BufferAllocation, buffer: HloBuffer) -> None:
        occupancy = self._occupancy[allocation]
        number = self._number_of.get(allocation)
        for value in buffer.values:
            self._allocation_of[value] = allocation
            for holder, index in value.positions:
                if not index:
                    self._readers.update(holder.users)
            live_range = self._range_of[value]
            occupancy.add(value, live_range)
            if number is not None:
                self._idle.occupy(number, live_range)

    def are_busy(self, buffer: HloBuffer) -> bool:
        """Whether a quick test shows that no allocation can take a buffer, the usual case."""
        values = buffer.values
        if len(values) > 1 or values[0].instruction in self._readers:
            return False
        start, end = self._range_of[values[0]]
        return start < end and self._idle.are_busy(2 * start + 1, 2 * end - 1)

    def of_operands(self, buffer: HloBuffer) -> list[BufferAllocation]:
        allocation_of, sets = self._allocation_of, self._problem.dataflow.value_sets
        found: list[BufferAllocation] = []
        for value in buffer.values:
            instruction = value.instruction
            if value.index or instruction.shape.is_tuple or instruction not in self._readers:
                continue
            for operand in instruction.operands:
                reads = {allocation_of[read] for read in sets[operand][0] if read in allocation_of}
                found += sorted(reads, key=lambda allocation: allocation.index)
        return found

    def idle(self, buffer: HloBuffer) -> Iterable[BufferAllocation]:
        """Reusable allocations that are idle during a buffer's live ranges, the newest first."""
        numbers = self._idle.idle(map(self._exclusive_half_steps, buffer.values))
        return map(self._reusable.__getitem__, numbers) if numbers else ()

    def _exclusive_half_steps(self, value: HloValue) -> tuple[int, int]:
        """Half steps exclusive to a value, without ends at which it, or its user, may overwrite."""
        start, end = self._range_of[value]
        sequence, may_share = self._sequence, self._sharing.is_possible
        first, last = 2 * start, 2 * end
        if may_share(value.instruction):
            first += 1
        if end < len(sequence) and may_share(sequence[end]):
            last -= 1
        return first, last

    def may_hold(
        self,
        allocation: BufferAllocation,
        buffer: HloBuffer,
        ignored: Collection[HloValue] = frozenset(),
    ) -> bool:
        """Whether a buffer fits into an allocation in size and time (`MaybeAssignBuffer`)."""
        size = self._size_of[buffer]
        if size > allocation.size or self._color_of[buffer.values[0]] != allocation.color:
            return False
        if buffer in self._live_out and size != allocation.size:
            return False
        occupancy = self._occupancy[allocation]
        return not any(
            self._interferes(value, allocation, occupancy, ignored) for value in buffer.values
        )

    def _interferes(
        self,
        value: HloValue,
        allocation: BufferAllocation,
        occupancy: Occupancy,
        ignored: Collection[HloValue],
    ) -> bool:
        live_range = self._range_of[value]
        for other, start, end in occupancy.overlapping(live_range):
            if other in ignored:
                continue
            if live_range.end == start:
                if not self._may_overwrite(value, other):
                    return True
            elif end != live_range.start or not self._may_overwrite(other, value):
                return True
        if value.instruction.opcode != "copy":
            return False
        copied = self._problem.dataflow.value_sets[value.instruction.operands[0]]
        return any(source in allocation.slices for part in copied for source in part)

    def _may_overwrite(self, operand: HloValue, user: HloValue) -> bool:
        """Whether `user` may overwrite `operand`, which ends as the user begins."""
        problem, instruction = self._problem, user.instruction
        if instruction.opcode == "copy":
            return False
        positions = operand.positions
        if not problem.options.shares_at_any_position:
            positions = [problem.live_ranges.end_position(operand)]
        return any(
            position.instruction in instruction.operands
            and self._sharing.is_allowed(
                position.instruction, position.shape_index, instruction, user.index
            )
            for position in positions
        )
