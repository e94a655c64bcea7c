"""Live ranges of another order or donation, from those of the one before.

In: the live ranges of a program, and another schedule for it. Out: the live ranges on that one, as
`analyze_live_ranges` finds them; only values are looked at that are defined, read or handed on by
an instruction whose time has changed. Searches for better orders ask for little else.
"""

from __future__ import annotations

from operator import is_not
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.analysis.async_chain import is_fully_bound_here, wrapped_computation
from hlomem.analysis.live_range import (
    FlattenedSchedule,
    LiveRanges,
    normalize_buffers,
    ranges_on,
)

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.live_range import LiveRange
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.schedule import Schedule
    from hlomem.machines.options import Options

_MAX_MOVED_SHARE = 0.5
"""The share of instructions that may move before it is as well to begin anew."""


class Dependents(Struct, frozen=True, eq=False):
    """The values whose live ranges depend on the time of an instruction."""

    values_at: dict[HloInstruction, list[HloValue]]
    shared: dict[HloValue, HloBuffer]
    """The buffers of values that have one together with others."""


def find_dependents(dataflow: Dataflow, aliasing: Aliasing) -> Dependents:
    """Look up, for each instruction, the values it defines, reads or hands on."""
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
    """The live ranges of a program in another order than before."""
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
    for buffer in buffers:  # ranges of a shared buffer are cut by one another
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
    """The live ranges of a program with another donation than before, and so with other buffers.

    Parameters of the entry live to the end unless they are given away, and values are cut by others
    of their buffer; nothing else changes.
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
    """Instructions whose own time has changed, or a time that counts for them."""
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
