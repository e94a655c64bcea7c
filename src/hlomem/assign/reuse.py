"""The live ranges of allocations, and the allocations that are idle during others.

An allocation of a result, or of a donated parameter, is idle before the result is computed and
after the parameter's last use. XLA tries every such allocation for a buffer, the newest first
(`DefaultBufferAllocationsManager...::TryAssignToExistingAllocation`). Here a segment tree over time
answers for all at once: a node holds a bit per allocation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.analysis.live_range import LiveRange
    from hlomem.analysis.values import HloValue


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
    """The busy times of allocations in half steps: "ends at t" and "continues past t" differ."""

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
