"""Live ranges of another order or donation, updated from earlier ones.

The results equal those of `analyze_live_ranges`, but only the values of instructions that moved are
recomputed. Searches for better orders move one block of instructions at a time.
"""

from __future__ import annotations

from operator import is_not
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.analysis.async_chain import is_fully_bound_here, wrapped_computation
from hlomem.analysis.live_range import FlattenedSchedule, LiveRanges, normalize_buffers, ranges_on
from hlomem.hlo.opcodes import ASYNC_OPCODES, RUN_IN_PLACE

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.live_range import LiveRange
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.schedule import Schedule
    from hlomem.machines.options import Options

_MAX_MOVED_SHARE = 0.5
"""Above this share of moved instructions, starting over is as fast."""


class Dependents(Struct, frozen=True, eq=False):
    values_at: dict[HloInstruction, list[HloValue]]
    shared: dict[HloValue, HloBuffer]


def find_dependents(dataflow: Dataflow, aliasing: Aliasing) -> Dependents:
    """Find the values that each instruction defines, reads or forwards."""
    values_at: dict[HloInstruction, list[HloValue]] = {}
    readers = dataflow.use_finder.readers
    for value in dataflow.values:
        touching = {value.instruction: None}
        for instruction, _ in value.positions:
            touching[instruction] = None
        for users in readers(value):
            for user in users:
                touching[user] = None
        for instruction in touching:
            values_at.setdefault(instruction, []).append(value)
    return Dependents(values_at, aliasing.united)


def move_live_ranges(
    before: LiveRanges,
    dependents: Dependents,
    dataflow: Dataflow,
    aliasing: Aliasing,
    schedule: Schedule,
    options: Options,
) -> LiveRanges:
    flattened = FlattenedSchedule(dataflow, schedule, options)
    limit = _MAX_MOVED_SHARE * len(flattened.sequence)
    if sum(map(is_not, before.sequence, flattened.sequence)) > limit:
        return ranges_on(flattened, dataflow, aliasing)
    moved = _moved(before, flattened, options)
    if len(moved) > limit:
        return ranges_on(flattened, dataflow, aliasing)
    range_of = before.range_of.copy()
    buffers: dict[HloBuffer, None] = {}
    fresh: dict[HloValue, LiveRange] = {}
    for instruction in moved:
        for value in dependents.values_at.get(instruction, ()):
            if value in fresh or value not in range_of:
                continue
            fresh[value] = flattened.live_range(value)
            if value in dependents.shared:
                buffers[dependents.shared[value]] = None
    range_of.update(fresh)
    for buffer in buffers:  # values of one buffer clip one another
        for value in buffer.values:
            if value in range_of:
                range_of[value] = flattened.live_range(value)
    range_of.update(normalize_buffers(buffers, range_of))
    return flattened.with_ranges(range_of)


def donate_live_ranges(
    before: LiveRanges,
    old: Aliasing,
    dataflow: Dataflow,
    aliasing: Aliasing,
    schedule: Schedule,
    options: Options,
) -> LiveRanges:
    """The live ranges of a program with other donations, and so with other buffers.

    Only entry parameters, which live to the end unless donated, and values that share buffers
    change.
    """
    flattened = FlattenedSchedule(dataflow, schedule, options)
    shared = [buffer for buffer in aliasing.buffers if len(buffer.values) > 1]
    parameters = [
        value
        for parameter in dataflow.module.entry.parameters
        for part in dataflow.value_sets[parameter]
        for value in part
    ]
    cut = [value for buffer in old.buffers if len(buffer.values) > 1 for value in buffer.values]
    united = [value for buffer in shared for value in buffer.values]
    range_of = before.range_of.copy()
    for value in (*parameters, *cut, *united):
        if value in range_of:
            range_of[value] = flattened.live_range(value)
    range_of.update(normalize_buffers(shared, range_of))
    return flattened.with_ranges(range_of)


def _moved(
    before: LiveRanges, flattened: FlattenedSchedule, options: Options
) -> dict[HloInstruction, None]:
    """Instructions whose own step has changed, or another step their live ranges depend on."""
    moved: dict[HloInstruction, None] = {
        new: None
        for old, new in zip(before.sequence, flattened.sequence, strict=True)
        if old is not new
    }
    for computation, span in flattened.span_of.items():
        if before.span_of.get(computation) != span:
            moved[computation.root] = None
            moved |= dict.fromkeys(computation.parameters)
        if before.done_time.get(computation) != flattened.done_time.get(computation):
            moved |= dict.fromkeys(computation.instructions)
    for instruction in flattened.sequence:
        if instruction.opcode == "while":
            if instruction.called_computations[0].parameters[0] in moved:
                moved[instruction] = None
        elif (
            instruction.opcode == "async-start"
            and instruction in moved
            and options.async_results_begin_late
            and is_fully_bound_here(instruction)
        ):
            moved[wrapped_computation(instruction).root] = None
    return moved


# One moved block.

_RUN_OTHERS = RUN_IN_PLACE | ASYNC_OPCODES
"""Their computations move with them and affect other live ranges."""
_IN_BLOCK = -1


class _Move(NamedTuple):
    """Two adjacent blocks of instructions that are swapped."""

    first: int
    """The first step at which the two orders differ."""
    last: int
    block: frozenset[HloInstruction]


def find_changed_buffers(
    before: LiveRanges, after: LiveRanges, dependents: Dependents, aliasing: Aliasing
) -> set[HloBuffer] | None:
    """The buffers with other relative live ranges; None unless one block at most was moved."""
    move = _find_move(before.sequence, after.sequence)
    if move is None or not _keeps_bounds(before, after, move):
        return None
    values = {value for moved in move.block for value in dependents.values_at.get(moved, ())}
    buffers = {aliasing.buffer_of[value] for value in values}
    return {
        buffer
        for buffer in buffers
        if any(_has_moved(value, before, after, move) for value in buffer.values)
    }


def _find_move(old: list[HloInstruction], new: list[HloInstruction]) -> _Move | None:
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
    """Whether every computation begins and ends at the same instructions outside the block."""
    old, new = before.sequence, after.sequence
    for computation, span in after.span_of.items():
        for was, is_now in zip(before.span_of[computation], span, strict=True):
            if was == is_now == len(old):
                continue
            if old[was] is not new[is_now] or old[was] in move.block:
                return False
    return True


def _has_moved(value: HloValue, before: LiveRanges, after: LiveRanges, move: _Move) -> bool:
    if value not in after.range_of:
        return False
    mapped = tuple([_new_time(time, before, after, move) for time in before.range_of[value]])
    return mapped != after.range_of[value]


def _new_time(time: int, before: LiveRanges, after: LiveRanges, move: _Move) -> int:
    if not move.first <= time <= move.last:
        return time
    instruction = before.sequence[time]
    return _IN_BLOCK if instruction in move.block else after.time_of[instruction]
