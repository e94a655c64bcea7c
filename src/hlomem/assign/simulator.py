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
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.live_range import LiveRange
    from hlomem.analysis.values import HloValue
    from hlomem.assign.packing import Packing
    from hlomem.machines.alias import AliasRules

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
        alias_rules: AliasRules,
    ) -> None:
        self._dataflow = dataflow
        self._buffer_of = aliasing.buffer_of
        self._range_of = range_of
        self._size_of = size_of
        self._alias_rules = alias_rules
        self._clock = 0
        self._start: dict[HloValue, int] = {}
        self._end: dict[HloValue, int] = {}
        self._owner: dict[HloValue, HloValue] = {}  # whose place a value has; its own, if none
        self._size: dict[HloValue, int] = {}
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
                [(start[each], end[each]) for each in others],
            )
            for owner, others in members.items()
        ]
        packing = pack(intervals, alignment)
        offset_by_id = packing.offset_by_id
        return Heap(
            {value: offset_by_id[owner.id] for value, owner in self._owner.items()},
            {value: size[owner] for value, owner in self._owner.items()},
            packing.heap_size,
        )

    def _replay(self, values: Collection[HloValue]) -> None:
        range_of, buffer_of, owner_of = self._range_of, self._buffer_of, self._owner
        in_order = sorted(values, key=lambda value: (*range_of[value], value.id))
        freed: dict[int, dict[HloValue, None]] = {}
        for value in in_order:
            freed.setdefault(range_of[value].end, {})[value] = None
        first_of: dict[HloBuffer, HloValue] = {}
        ends = sorted(freed, reverse=True)
        for value in in_order:
            start = range_of[value].start
            while ends and ends[-1] < start:
                self._free_all(freed[ends.pop()])
            buffer = buffer_of[value]
            first = first_of.get(buffer)
            if first is not None:
                self._begin(value, owner_of[first])
                continue
            operand = None
            if start in freed and len(buffer.values) == 1:
                operand = self._dying_operand(value, freed[start])
            if operand is None:
                self._begin(value, value)
                first_of[buffer] = value
            else:
                self._free_all((operand,))
                del freed[start][operand]
                self._begin(value, owner_of[operand])
                self._is_extended.add(operand)
        while ends:
            self._free_all(freed[ends.pop()])

    def _begin(self, value: HloValue, owner: HloValue) -> None:
        self._owner[value] = owner
        self._start[value] = self._clock
        # A buffer of no bytes takes no time, either.
        if self._size[value]:
            self._clock += 1

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
        rules = self._alias_rules
        if not may_share_with_operand(instruction, rules):
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
                    and can_share_operand_buffer(
                        self._dataflow,
                        candidate.instruction,
                        candidate.index,
                        instruction,
                        value.index,
                        rules,
                    )
                ):
                    return candidate
        return None
