"""Waiting temporaries → one heap per memory space.

Mirrors `BufferAssigner::AssignBuffersWithSequentialOrdering` of `service/buffer_assignment.cc` and
`HeapSimulator::RunComputation` of `service/heap_simulator/heap_simulator.cc`: the program is
simulated with one tick per allocation and release, and the packer sees ticks. A value takes the
offset of an operand that it may overwrite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hlomem.assign.allocation import BufferAllocation, OffsetSize
from hlomem.assign.packing import BufferInterval, Intervals, Packing, pack_best, pack_by_time
from hlomem.base.quantities import AllocationIndex, ByteCount, Color, Offset, Step, ValueId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.values import HloValue
    from hlomem.assign.problem import Problem
    from hlomem.assign.sharing import Sharing

    Life = tuple[Step, Step, ValueId, HloValue, ByteCount]
    """The first and last step of a value, its id, itself, and the bytes of its buffer."""
    Pack = Callable[[Sequence[BufferInterval], int], Packing]


def assign_heaps(
    problem: Problem,
    waiting: list[HloBuffer],
    pack: Pack | None,
    allocations: list[BufferAllocation],
) -> None:
    """Pack temporaries by `pack`, or as XLA does."""
    lives_by_color = _lives_by_color(problem, waiting)
    for color in sorted(lives_by_color):
        is_fast = color in problem.options.fast_merge_colors
        slices, size = HeapSimulator(
            lives_by_color[color], problem.aliasing.united, problem.timeless.sharing
        ).run(problem.alignment(color), pack or (pack_by_time if is_fast else pack_best))
        index = AllocationIndex(len(allocations))
        allocations.append(BufferAllocation(index, size, color, slices))


def _lives_by_color(problem: Problem, waiting: list[HloBuffer]) -> dict[Color, list[Life]]:
    range_of, size_of = problem.live_ranges.range_of, problem.size_of
    lives: list[Life] = [
        (*range_of[value], value.id, value, size_of[buffer])
        for buffer in waiting
        for value in buffer.values
    ]
    if lives and (only := problem.timeless.only_color) is not None:
        return {only: lives}
    by_color: dict[Color, list[Life]] = {}
    for life in lives:
        by_color.setdefault(problem.color_of[life[3]], []).append(life)
    return by_color


class HeapSimulator:
    """One run over the schedule; values are numbered by the start of their live ranges."""

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
        self._owner: list[int] = []  # the value whose offset a value has, or itself

    def run(self, alignment: int, pack: Pack) -> tuple[dict[HloValue, OffsetSize], ByteCount]:
        """The slices, as large as the largest value at their offset, and the size of the heap."""
        self._replay()
        column_of: dict[int, int] = {}  # of owners
        shared: dict[int, list[tuple[int, int]]] = {}
        begin, end = self._begin, self._end
        for number, owner in enumerate(self._owner):
            if number == owner:
                column_of[number] = len(column_of)
            else:
                shared.setdefault(column_of[owner], []).append((begin[number], end[number]))
        sizes = [self._sizes[owner] for owner in column_of]
        ids = [self._values[owner].id for owner in column_of]
        begins = [begin[owner] for owner in column_of]
        ends = [end[owner] for owner in column_of]
        packing = pack(Intervals(ids, sizes, begins, ends, shared), alignment)
        offset_by_id = cast("dict[int, Offset]", packing.offset_by_id)
        slices = list(map(OffsetSize, map(offset_by_id.__getitem__, ids), sizes))
        owned = [slices[column_of[owner]] for owner in self._owner]
        return dict(zip(self._values, owned, strict=True)), ByteCount(packing.heap_size)

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
            if sizes[number]:  # an empty buffer takes no tick
                clock += 1
        while ends:
            clock = self._free_all(freed[ends.pop()].values(), clock)

    def _free_all(self, numbers: Iterable[int], clock: int) -> int:
        """Record the ends of values, one tick each; returns the clock."""
        end, sizes = self._end, self._sizes
        for number in numbers:
            end[number] = clock
            if sizes[number]:
                clock += 1
        return clock

    def _dying_operand(self, value: HloValue, dying: Mapping[HloValue, int]) -> HloValue | None:
        """An operand that is read for the last time and that the value may overwrite."""
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
