"""Two orders of a program that differ in the place of one stretch of instructions.

In: the live ranges of a program in two orders. Out: the buffers whose lives lie otherwise among
those of all the others; None where the orders differ by more. Two lives of other buffers lie to one
another as they did: before, after, or one ending as the other begins. Searches for better orders
move one instruction at a time.
"""

from __future__ import annotations

from operator import is_not
from typing import TYPE_CHECKING

from hlomem.base.named_tuples import NamedTuple
from hlomem.hlo.opcodes import ASYNC_OPCODES, RUN_IN_PLACE

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.live_range import LiveRanges
    from hlomem.analysis.moved_ranges import Dependents
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloInstruction

_RUN_OTHERS = RUN_IN_PLACE | ASYNC_OPCODES
"""Their computations go with them, and the times of these count for others."""
_IN_BLOCK = -1


class _Move(NamedTuple):
    """A stretch of instructions that changes places with the one next to it."""

    first: int
    """The first step at which the two orders differ."""
    last: int
    block: frozenset[HloInstruction]
    """The shorter of the two."""


def find_changed_buffers(
    before: LiveRanges, after: LiveRanges, dependents: Dependents, aliasing: Aliasing
) -> set[HloBuffer] | None:
    """The buffers that lie otherwise among the rest; None where the orders differ by much."""
    move = _find_move(before.sequence, after.sequence)
    if move is None or not _keeps_bounds(before, after, move):
        return None
    values = {value for moved in move.block for value in dependents.values_at.get(moved, ())}
    buffers = {aliasing.buffer_of[value] for value in values}
    return {
        buffer
        for buffer in buffers
        if any(_is_elsewhere(value, before, after, move) for value in buffer.values)
    }


def _find_move(old: list[HloInstruction], new: list[HloInstruction]) -> _Move | None:
    """How one order becomes the other."""
    differs = list(map(is_not, old, new))
    if True not in differs:
        return _Move(0, -1, frozenset())
    first = differs.index(True)
    differs.reverse()
    last = len(old) - 1 - differs.index(True)
    one, other = old[first : last + 1], new[first : last + 1]
    cut = other.index(one[0])
    if other[cut:] + other[:cut] != one:
        return None
    block = frozenset(other[:cut] if 2 * cut < len(other) else other[cut:])
    if any(moved.opcode in _RUN_OTHERS or moved.is_root for moved in block):
        return None
    return _Move(first, last, block)


def _keeps_bounds(before: LiveRanges, after: LiveRanges, move: _Move) -> bool:
    """Whether every computation begins and ends where it did, by what runs then."""
    old, new = before.sequence, after.sequence
    for computation, span in after.span_of.items():
        for was, is_now in zip(before.span_of[computation], span, strict=True):
            if was == is_now == len(old):
                continue
            if old[was] is not new[is_now] or old[was] in move.block:
                return False
    return True


def _is_elsewhere(value: HloValue, before: LiveRanges, after: LiveRanges, move: _Move) -> bool:
    if value not in after.range_of:
        return False
    mapped = tuple([_new_time(time, before, after, move) for time in before.range_of[value]])
    return mapped != after.range_of[value]


def _new_time(time: int, before: LiveRanges, after: LiveRanges, move: _Move) -> int:
    """The time at which that runs which ran at a time before."""
    if not move.first <= time <= move.last:
        return time
    instruction = before.sequence[time]
    return _IN_BLOCK if instruction in move.block else after.time_of[instruction]
