"""Schedule → allocations and releases over time → packing.

In: the values to place, their live ranges and sizes. Out: an offset for each and the size of the
heap. Mirrors `HeapSimulator::RunComputation` of `service/heap_simulator/heap_simulator.cc`: the
program is simulated, one tick of a clock for every allocation and every release, and the packer
sees the ticks. Where a value dies as another is made from it, the other takes its place if
the instruction allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hlomem.assign.allocation import OffsetSize
from hlomem.assign.packing import Intervals
from hlomem.base.named_tuples import NamedTuple
from hlomem.base.quantities import ByteCount

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.live_range import LiveRange
    from hlomem.analysis.values import HloValue
    from hlomem.assign.packing import BufferInterval, Packing
    from hlomem.assign.sharing import OperandValues, Sharing
    from hlomem.base.quantities import Offset, Step

    Pack = Callable[[Sequence[BufferInterval], int], Packing]


class Heap(NamedTuple):
    """The places of the values in a heap, and its size."""

    slices: dict[HloValue, OffsetSize]
    """A value has as many bytes as the largest it shares its place with."""
    heap_size: ByteCount


class HeapSimulator:
    """One run over the schedule."""

    def __init__(
        self,
        aliasing: Aliasing,
        range_of: Mapping[HloValue, LiveRange],
        size_of: Mapping[HloValue, ByteCount],
        sharing: Sharing,
        operand_values: OperandValues,
    ) -> None:
        self._buffer_of = aliasing.buffer_of
        self._range_of = range_of
        self._size = size_of
        self._sharing = sharing
        self._operand_values = operand_values
        self._start: dict[HloValue, int] = {}
        self._end: dict[HloValue, int] = {}
        self._owner: dict[HloValue, HloValue] = {}  # whose place a value has; its own, if none

    def run(self, values: Collection[HloValue], alignment: int, pack: Pack) -> Heap:
        """Place the values."""
        self._replay(values)
        number_of: dict[HloValue, int] = {}  # of those whose place is their own
        shared: dict[int, list[tuple[int, int]]] = {}
        start, end = self._start, self._end
        for value, owner in self._owner.items():
            if value is owner:
                number_of[value] = len(number_of)
            else:
                times = shared.setdefault(number_of[owner], [])
                times.append((start[value], end[value]))
        sizes = [self._size[owner] for owner in number_of]
        ids = [owner.id for owner in number_of]
        starts = [start[owner] for owner in number_of]
        ends = [end[owner] for owner in number_of]
        packing = pack(Intervals(ids, sizes, starts, ends, shared), alignment)
        offset_by_id = cast("dict[int, Offset]", packing.offset_by_id)
        offsets = map(offset_by_id.__getitem__, ids)
        places = list(map(OffsetSize, offsets, sizes))
        slices = {value: places[number_of[owner]] for value, owner in self._owner.items()}
        return Heap(slices, ByteCount(packing.heap_size))

    def _replay(self, values: Collection[HloValue]) -> None:
        range_of, buffer_of, owner_of = self._range_of, self._buffer_of, self._owner
        start_of, size_of, clock = self._start, self._size, 0
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
                clock = self._free_all(freed[ends.pop()], clock)
            buffer = buffer_of[value]
            owner = value
            if len(buffer.values) > 1:
                first = first_of.setdefault(buffer, value)
                owner = value if first is value else owner_of[first]
            elif start in freed:
                operand = self._dying_operand(value, freed[start])
                if operand is not None:
                    clock = self._free_all((operand,), clock)
                    del freed[start][operand]
                    owner = owner_of[operand]
            owner_of[value] = owner
            start_of[value] = clock
            if size_of[value]:  # a buffer of no bytes takes no time, either
                clock += 1
        while ends:
            clock = self._free_all(freed[ends.pop()], clock)

    def _free_all(self, values: Iterable[HloValue], clock: int) -> int:
        """Note when values end, one after the other; returns the time after that."""
        end_of, size_of = self._end, self._size
        for value in values:
            end_of[value] = clock
            if size_of[value]:
                clock += 1
        return clock

    def _dying_operand(self, value: HloValue, dying: Mapping[HloValue, None]) -> HloValue | None:
        """An operand that is read for the last time here and whose place the value may have."""
        instruction, sharing = value.instruction, self._sharing
        if not dying or instruction.opcode == "copy" or not sharing.is_possible(instruction):
            return None
        for candidate in self._operand_values.all_of(instruction):
            if (
                candidate in dying
                and len(self._buffer_of[candidate].values) == 1
                and candidate.instruction in instruction.operands
                and sharing.is_allowed(
                    candidate.instruction, candidate.index, instruction, value.index
                )
            ):
                return candidate
        return None
