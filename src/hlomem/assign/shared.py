"""Allocations that buffers share in turn (`MaybeAssignBuffer` of buffer_assignment.cc)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from hlomem.assign.allocation import BufferAllocation, whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.live_range import LiveRange
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


class Occupancy:
    """The live ranges in one allocation, in order; one may end at the step another begins."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int, HloValue]] = []  # end, start, id, value

    def add(self, value: HloValue, live_range: LiveRange) -> None:
        insort(self._entries, (live_range.end, live_range.start, value.id, value))

    def overlapping(self, live_range: LiveRange) -> Iterator[tuple[HloValue, int, int]]:
        """The values that are live at some time of `live_range`, with start and end."""
        entries = self._entries
        for i in range(bisect_left(entries, (live_range.start,)), len(entries)):
            end, start, _, value = entries[i]
            if start > live_range.end:
                break
            yield value, start, end


class IdleAllocations:
    """The busy times of allocations in half steps: "ends at t" and "continues past t" differ.

    XLA tries every allocation that is idle before its result or after its donated parameter's last
    use, the newest first (`TryAssignToExistingAllocation`). A segment tree over time answers for
    all at once: a node holds a bit per allocation.
    """

    def __init__(self, end: int) -> None:
        self._leaf_count = 1 << (2 * end).bit_length()
        self._covering = [0] * (2 * self._leaf_count)
        self._beginning = [0] * (2 * self._leaf_count)
        self._changing: dict[int, int] = {}  # allocations with a begin or an end, by step
        self._all = 0
        self._noted: list[tuple[int, LiveRange]] = []  # not in the tree yet
        self._end = 2 * end
        # Idle times as registered, without those inside others; both lists ascend.
        self._idle_from: list[int] = []
        self._idle_to: list[int] = []

    def register(self, number: int, busy: Iterable[LiveRange] = ()) -> None:
        """Add allocation `number`, which is busy at some times."""
        self._all |= 1 << number
        first = 0
        for live_range in sorted(busy):
            start, end = live_range
            if first < 2 * start:
                self._add_idle(first, 2 * start - 1)
            first = max(first, 2 * end + 1)
            self._noted.append((number, live_range))
        if first <= self._end:
            self._add_idle(first, self._end)

    def _add_idle(self, first: int, last: int) -> None:
        idle_from, idle_to = self._idle_from, self._idle_to
        high = bisect_right(idle_from, first)
        if high and idle_to[high - 1] >= last:
            return
        low = bisect_left(idle_from, first)
        high = max(low, bisect_right(idle_to, last))
        idle_from[low:high] = [first]
        idle_to[low:high] = [last]

    def occupy(self, number: int, live_range: LiveRange) -> None:
        """Mark an allocation as busy, both ends included."""
        self._noted.append((number, live_range))

    def _add(self, number: int, live_range: LiveRange) -> None:
        bit = 1 << number
        start, end = live_range
        changing = self._changing
        changing[start] = changing.get(start, 0) | bit
        changing[end] = changing.get(end, 0) | bit
        low = 2 * start + self._leaf_count
        high = 2 * end + self._leaf_count
        covering, beginning = self._covering, self._beginning
        node = low if start else 0  # no query begins before the first step
        while node and not beginning[node] & bit:
            beginning[node] |= bit
            node >>= 1
        high += 1
        while low < high:
            if low & 1:
                covering[low] |= bit
                low += 1
            if high & 1:
                high -= 1
                covering[high] |= bit
            low >>= 1
            high >>= 1

    def idle(self, half_steps: Iterable[tuple[int, int]]) -> Iterable[int]:
        """The allocations that are idle during ranges of half steps, the newest first, lazily.

        An empty range stands for a step that may be shared with values that begin or end there.
        """
        busy, everything = 0, self._all
        for first, last in half_steps if everything else ():
            if first <= last:
                busy |= self._busy(first, last)
            else:
                step = (first + last + 1) // 4
                busy |= self._busy(2 * step, 2 * step) & ~self._changing.get(step, 0)
            if busy == everything:  # the usual case
                return ()
        return _bits(everything & ~busy)

    def are_busy(self, first: int, last: int) -> bool:
        """Whether no allocation was idle in a range of half steps when it was registered."""
        index = bisect_right(self._idle_from, first)
        return not index or self._idle_to[index - 1] < last

    def _busy(self, first: int, last: int) -> int:
        if self._noted:
            for number, live_range in self._noted:
                self._add(number, live_range)
            self._noted.clear()
        covering, beginning, everything = self._covering, self._beginning, self._all
        low, high = first + self._leaf_count, last + self._leaf_count
        busy = 0
        # Busy at the ends, from the root of the tree down.
        for shift in range(low.bit_length() - 1, -1, -1):
            busy |= covering[low >> shift] | covering[high >> shift]
            if busy == everything:
                return busy
        # Busy from a step in between.
        low += 1
        while low < high:
            if low & 1:
                busy |= beginning[low]
                low += 1
            if high & 1:
                high -= 1
                busy |= beginning[high]
            low >>= 1
            high >>= 1
        return busy


def _bits(number: int) -> Iterator[int]:
    """The positions of the bits of a number, the highest first."""
    while number:
        position = number.bit_length() - 1
        yield position
        number ^= 1 << position
