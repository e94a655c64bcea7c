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
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.values import HloValue
    from hlomem.assign.packing import BufferInterval, Packing
    from hlomem.assign.sharing import Sharing
    from hlomem.base.quantities import Offset, Step, ValueId

    Life = tuple[Step, Step, ValueId, HloValue, ByteCount]
    """The first and the last step of a value, its id, and the bytes of its buffer."""
    Pack = Callable[[Sequence[BufferInterval], int], Packing]


class Heap(NamedTuple):
    """The places of the values in a heap, and its size."""

    slices: dict[HloValue, OffsetSize]
    """A value has as many bytes as the largest it shares its place with."""
    heap_size: ByteCount


class HeapSimulator:
    """One run over the schedule; values are numbered in the order in which they begin to live."""

    def __init__(
        self, lives: Iterable[Life], united: Mapping[HloValue, HloBuffer], sharing: Sharing
    ) -> None:
        in_order = sorted(lives)
        self._starts = [life[0] for life in in_order]
        self._values = [life[3] for life in in_order]
        self._sizes = [life[4] for life in in_order]
        self._united = united
        self._sharing = sharing
        self._freed: dict[Step, dict[HloValue, int]] = {}
        for number, (_, end, _, value, _) in enumerate(in_order):
            if end in self._freed:
                self._freed[end][value] = number
            else:
                self._freed[end] = {value: number}
        self._begin: list[int] = []
        self._end = [0] * len(in_order)
        self._owner: list[int] = []  # whose place a value has; its own, if none

    def run(self, alignment: int, pack: Pack) -> Heap:
        """Place the values."""
        self._replay()
        place_of: dict[int, int] = {}  # of those whose place is their own, in the columns
        shared: dict[int, list[tuple[int, int]]] = {}
        begin, end = self._begin, self._end
        for number, owner in enumerate(self._owner):
            if number == owner:
                place_of[number] = len(place_of)
            else:
                shared.setdefault(place_of[owner], []).append((begin[number], end[number]))
        sizes = [self._sizes[owner] for owner in place_of]
        ids = [self._values[owner].id for owner in place_of]
        begins = [begin[owner] for owner in place_of]
        ends = [end[owner] for owner in place_of]
        packing = pack(Intervals(ids, sizes, begins, ends, shared), alignment)
        offset_by_id = cast("dict[int, Offset]", packing.offset_by_id)
        places = list(map(OffsetSize, map(offset_by_id.__getitem__, ids), sizes))
        owned = [places[place_of[owner]] for owner in self._owner]
        slices = dict(zip(self._values, owned, strict=True))
        return Heap(slices, ByteCount(packing.heap_size))

    def _replay(self) -> None:
        freed, united, owner_of, sizes = self._freed, self._united, self._owner, self._sizes
        clock = 0
        first_of: dict[HloBuffer, int] = {}
        ends = sorted(freed, reverse=True)
        for number, start in enumerate(self._starts):
            while ends and ends[-1] < start:
                clock = self._free_all(freed[ends.pop()].values(), clock)
            owner = number
            if (value := self._values[number]) in united:
                first = first_of.setdefault(united[value], number)
                owner = number if first == number else owner_of[first]
            elif freed.get(start):
                operand = self._dying_operand(value, freed[start])
                if operand is not None:
                    freed_operand = freed[start].pop(operand)
                    clock = self._free_all((freed_operand,), clock)
                    owner = owner_of[freed_operand]
            owner_of.append(owner)
            self._begin.append(clock)
            if sizes[number]:  # a buffer of no bytes takes no time, either
                clock += 1
        while ends:
            clock = self._free_all(freed[ends.pop()].values(), clock)

    def _free_all(self, numbers: Iterable[int], clock: int) -> int:
        """Note when values end, one after the other; returns the time after that."""
        end, sizes = self._end, self._sizes
        for number in numbers:
            end[number] = clock
            if sizes[number]:
                clock += 1
        return clock

    def _dying_operand(self, value: HloValue, dying: Mapping[HloValue, int]) -> HloValue | None:
        """An operand that is read for the last time here and whose place the value may have."""
        instruction, sharing = value.instruction, self._sharing
        for candidate in sharing.candidates[instruction]:
            if (
                candidate in dying
                and candidate not in self._united
                and sharing.is_allowed(
                    candidate.instruction, candidate.index, instruction, value.index
                )
            ):
                return candidate
        return None
