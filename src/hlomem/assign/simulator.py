"""Schedule → allocations and releases over time → packing.

In: the values to place, their live ranges and sizes. Out: an offset for each and the size of the
heap. Mirrors `HeapSimulator::RunComputation` of `service/heap_simulator/heap_simulator.cc`: the
program is simulated, one tick of a clock for every allocation and every release, and the packer
sees the ticks. Where a value dies as another is made from it, the other takes its place if
the instruction allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from hlomem.assign.packing import BufferInterval
from hlomem.base.quantities import ByteCount

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.live_range import LiveRange
    from hlomem.analysis.values import HloValue
    from hlomem.assign.packing import Packing
    from hlomem.assign.sharing import Sharing
    from hlomem.base.quantities import Offset, Step

    Pack = Callable[[Sequence[BufferInterval], int], Packing]


class Heap(NamedTuple):
    """The offsets of the values in a heap, and its size."""

    offset_of: dict[HloValue, Offset]
    size_of: dict[HloValue, ByteCount]
    """Bytes each value was given: those of the largest it shares its place with."""
    heap_size: ByteCount


class HeapSimulator:
    """One run over the schedule."""

    def __init__(
        self,
        dataflow: Dataflow,
        aliasing: Aliasing,
        range_of: Mapping[HloValue, LiveRange],
        size_of: Callable[[HloBuffer], ByteCount],
        sharing: Sharing,
    ) -> None:
        self._dataflow = dataflow
        self._buffer_of = aliasing.buffer_of
        self._range_of = range_of
        self._size_of = size_of
        self._sharing = sharing
        self._clock = 0
        self._start: dict[HloValue, int] = {}
        self._end: dict[HloValue, int] = {}
        self._owner: dict[HloValue, HloValue] = {}  # whose place a value has; its own, if none
        self._size: dict[HloValue, ByteCount] = {}
        self._is_extended: set[HloValue] = set()  # operands whose place went to a user

    def run(self, values: Collection[HloValue], alignment: int, pack: Pack) -> Heap:
        """Place the values."""
        size_of, buffer_of = self._size_of, self._buffer_of
        self._size = {value: size_of(buffer_of[value]) for value in values}
        self._replay(values)
        members: dict[HloValue, list[HloValue]] = {}
        for value, owner in self._owner.items():
            if value is owner:
                members[owner] = []
            else:
                members[owner].append(value)
        start, end, size = self._start, self._end, self._size
        intervals = [
            BufferInterval(
                owner.id,
                size[owner],
                start[owner],
                end[owner],
                [(start[other], end[other]) for other in others] if others else (),
            )
            for owner, others in members.items()
        ]
        packing = pack(intervals, alignment)
        offset_by_id = cast("dict[int, Offset]", packing.offset_by_id)
        return Heap(
            {value: offset_by_id[owner.id] for value, owner in self._owner.items()},
            {value: size[owner] for value, owner in self._owner.items()},
            ByteCount(packing.heap_size),
        )

    def _replay(self, values: Collection[HloValue]) -> None:
        range_of, buffer_of, owner_of = self._range_of, self._buffer_of, self._owner
        in_order = sorted([(*range_of[value], value.id, value) for value in values])
        freed: dict[Step, dict[HloValue, None]] = {}
        for _, end, _, value in in_order:
            if end in freed:
                freed[end][value] = None
            else:
                freed[end] = {value: None}
        first_of: dict[HloBuffer, HloValue] = {}
        ends = sorted(freed, reverse=True)
        for start, _, _, value in in_order:
            while ends and ends[-1] < start:
                self._free_all(freed[ends.pop()])
            buffer = buffer_of[value]
            owner = value
            if len(buffer.values) > 1:
                first = first_of.setdefault(buffer, value)
                owner = value if first is value else owner_of[first]
            elif start in freed:
                operand = self._dying_operand(value, freed[start])
                if operand is not None:
                    self._free_all((operand,))
                    del freed[start][operand]
                    self._is_extended.add(operand)
                    owner = owner_of[operand]
            owner_of[value] = owner
            self._start[value] = self._clock
            if self._size[value]:  # a buffer of no bytes takes no time, either
                self._clock += 1
        while ends:
            self._free_all(freed[ends.pop()])

    def _free_all(self, values: Iterable[HloValue]) -> None:
        for value in values:
            self._end[value] = self._clock
            if self._size[value]:
                self._clock += 1

    def _dying_operand(self, value: HloValue, dying: Mapping[HloValue, None]) -> HloValue | None:
        """An operand that is read for the last time here and whose place the value may have."""
        instruction = value.instruction
        if not dying or instruction.opcode == "copy":
            return None
        sharing = self._sharing
        if not sharing.is_possible(instruction):
            return None
        now = self._range_of[value].start
        for operand in instruction.operands:
            for candidate in self._dataflow.value_sets[operand][0]:
                if (
                    candidate in dying
                    and candidate not in self._is_extended
                    and len(self._buffer_of[candidate].values) == 1
                    and self._range_of[candidate].end == now
                    and candidate.instruction in instruction.operands
                    and sharing.is_allowed(
                        candidate.instruction, candidate.index, instruction, value.index
                    )
                ):
                    return candidate
        return None
