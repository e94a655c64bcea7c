"""Step 0: buffers with given offsets.

On TPU, memory-space assignment moves values into fast memory and fixes their offsets
(`PresetAssignments` of `service/memory_space_assignment/memory_space_assignment.h`); buffer
assignment keeps them (`BufferAssigner::AssignPresetBuffers`). That stacks of other cores begin at 0
is inferred from dumps of libtpu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.assign.allocation import BufferAllocation, OffsetSize
from hlomem.base.quantities import BEGINNING, AllocationIndex, ByteCount, Color

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.assign.problem import Problem
    from hlomem.hlo.shape import ShapeIndex


class Preset(Struct, frozen=True):
    size_of_color: Mapping[Color, ByteCount]
    slice_of: Mapping[tuple[str, ShapeIndex], OffsetSize]
    """The slices of values in the allocation of their color, by instruction and index."""


NO_PRESET = Preset({}, {})


def assign_preset_buffers(
    problem: Problem, preset: Preset, allocations: list[BufferAllocation]
) -> set[HloBuffer]:
    """Assign the given offsets; returns their buffers."""
    allocation_of = {}
    for color, size in preset.size_of_color.items():
        allocation_of[color] = BufferAllocation(AllocationIndex(len(allocations)), size, color)
        allocations.append(allocation_of[color])
    assigned: set[HloBuffer] = set()
    for buffer in problem.aliasing.buffers if allocation_of else ():
        for value in buffer.values:
            given = preset.slice_of.get((value.instruction.name, value.index))
            allocation = allocation_of.get(problem.color_of[value])
            if given is not None and allocation is not None:
                assigned.add(buffer)
                allocation.slices.update(dict.fromkeys(buffer.values, given))
                break
    return assigned


def assign_private_stacks(
    problem: Problem, placed: set[HloBuffer], allocations: list[BufferAllocation]
) -> set[HloBuffer]:
    """Assign offset 0 to all values on the stack of another core; returns their buffers."""
    stack_colors = problem.options.machine.stack_colors
    on_stacks: set[HloBuffer] = set()
    if not stack_colors:
        return on_stacks
    allocation_of: dict[Color, BufferAllocation] = {}
    for buffer in problem.in_order(problem.timeless.in_flow, placed):
        color = problem.color(buffer)
        if color not in stack_colors:
            continue
        size = problem.size_of[buffer]
        if color not in allocation_of:
            index = AllocationIndex(len(allocations))
            allocation_of[color] = BufferAllocation(index, ByteCount(0), color)
            allocations.append(allocation_of[color])
        allocation = allocation_of[color]
        allocation.size = max(allocation.size, size)
        allocation.slices |= dict.fromkeys(buffer.values, OffsetSize(BEGINNING, size))
        on_stacks.add(buffer)
    return on_stacks
