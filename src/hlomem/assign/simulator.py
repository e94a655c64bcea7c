"""Schedule → who takes and frees memory when → packing.

In: the values to place, their live ranges and sizes. Out: an offset for each and the size of the
heap. Mirrors `HeapSimulator::RunComputation` of `service/heap_simulator/heap_simulator.cc`: the
program is run in the mind, one tick of a clock for every allocation and every release, and the
packer sees the ticks. Where a value dies as another is made from it, the other takes its place if
the instruction allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.analysis.alias_rules import can_share_operand_buffer, may_share_with_operand
from hlomem.assign.packing import BufferInterval

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.live_range import LiveRange
    from hlomem.analysis.values import HloValue
    from hlomem.assign.packing import Packing

    Pack = Callable[[Sequence[BufferInterval], int], Packing]


class Heap(NamedTuple):
    """Where the values lie, and how many bytes that takes."""

    offset_of: dict[HloValue, int]
    size_of: dict[HloValue, int]
    """Bytes each value was given: those of the largest it shares its place with."""
    heap_size: int


class HeapSimulator:
    """One run over the schedule."""

    def __init__(
        self,
        dataflow: Dataflow,
        aliasing: Aliasing,
        range_of: Mapping[HloValue, LiveRange],
        size_of: Callable[[HloBuffer], int],
    ) -> None:
        self._dataflow = dataflow
        self._aliasing = aliasing
        self._range_of = range_of
        self._size_of = size_of
        self._clock = 0
        self._start: dict[HloValue, int] = {}
        self._end: dict[HloValue, int] = {}
        self._owner: dict[HloValue, HloValue] = {}  # whose place a value has; its own, if none
        self._extended_end: dict[HloValue, int] = {}  # operands whose place went to a user

    def run(self, values: Collection[HloValue], alignment: int, pack: Pack) -> Heap:
        """Place the values."""
        self._replay(values)
        members: dict[HloValue, list[HloValue]] = {}
        for value, owner in self._owner.items():
            members.setdefault(owner, []).append(value)
        intervals = [
            BufferInterval(
                owner.id,
                self._size_of(self._aliasing.buffer_of[owner]),
                self._start[owner],
                self._end[owner],
                [(self._start[each], self._end[each]) for each in group if each is not owner],
            )
            for owner, group in members.items()
        ]
        packing = pack(intervals, alignment)
        offset_of: dict[HloValue, int] = {}
        size_of: dict[HloValue, int] = {}
        for interval, group in zip(intervals, members.values(), strict=True):
            for value in group:
                offset_of[value] = packing.offset_by_id[interval.id]
                size_of[value] = interval.size
        return Heap(offset_of, size_of, packing.heap_size)

    def _replay(self, values: Collection[HloValue]) -> None:
        range_of = self._range_of
        in_order = sorted(values, key=lambda value: (*range_of[value], value.id))
        freed: dict[int, dict[HloValue, None]] = {}
        for value in in_order:
            freed.setdefault(range_of[value].end, {})[value] = None
        first_of: dict[HloBuffer, HloValue] = {}
        ends = sorted(freed)
        next_end = 0
        for value in in_order:
            start = range_of[value].start
            while next_end < len(ends) and ends[next_end] < start:
                self._free_all(freed[ends[next_end]])
                next_end += 1
            buffer = self._aliasing.buffer_of[value]
            first = first_of.get(buffer)
            if first is not None:
                self._begin(value, self._owner[first])
                continue
            operand = None
            if len(buffer.values) == 1:
                operand = self._dying_operand(value, freed.get(start))
            if operand is None:
                self._begin(value, value)
                first_of[buffer] = value
            else:
                self._free(operand)
                del freed[start][operand]
                self._begin(value, self._owner[operand])
                self._extended_end[operand] = range_of[value].end
        for end in ends[next_end:]:
            self._free_all(freed[end])

    def _begin(self, value: HloValue, owner: HloValue) -> None:
        self._owner[value] = owner
        self._start[value] = self._clock
        # A buffer of no bytes takes no time, either.
        self._clock += self._takes_room(value)

    def _free(self, value: HloValue) -> None:
        self._end[value] = self._clock
        self._clock += self._takes_room(value)

    def _free_all(self, values: Mapping[HloValue, None]) -> None:
        for value in values:
            self._free(value)

    def _takes_room(self, value: HloValue) -> bool:
        return self._size_of(self._aliasing.buffer_of[value]) > 0

    def _dying_operand(
        self, value: HloValue, dying: Mapping[HloValue, None] | None
    ) -> HloValue | None:
        """An operand that is read for the last time here and whose place the value may have."""
        instruction = value.instruction
        if not dying or instruction.opcode == "copy" or not may_share_with_operand(instruction):
            return None
        now = self._range_of[value].start
        for operand in instruction.operands:
            for candidate in self._dataflow.value_sets[operand][0]:
                if (
                    candidate in dying
                    and candidate not in self._extended_end
                    and len(self._aliasing.buffer_of[candidate].values) == 1
                    and self._range_of[candidate].end == now
                    and candidate.instruction in instruction.operands
                    and can_share_operand_buffer(
                        self._dataflow,
                        candidate.instruction,
                        candidate.index,
                        instruction,
                        value.index,
                    )
                ):
                    return candidate
        return None
