"""Step 0: buffers that have their place before anything is decided.

In: the problem, and the places an earlier pass chose. Out: allocations, and the buffers in them.
Mirrors `BufferAssigner::AssignPresetBuffers` of `service/buffer_assignment.cc`; that the stacks of
other cores begin at 0 was read off dumps of libtpu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.allocation import BufferAllocation, OffsetSize
from hlomem.base.quantities import BEGINNING, AllocationIndex, ByteCount, Color

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.assign.preset import Preset
    from hlomem.assign.problem import Problem


def assign_preset_buffers(
    problem: Problem, preset: Preset, allocations: list[BufferAllocation]
) -> set[HloBuffer]:
    """Take over the places an earlier pass chose; returns the buffers."""
    allocation_of = {}
    for color, size in preset.size_of_color.items():
        allocation_of[color] = BufferAllocation(AllocationIndex(len(allocations)), size, color)
        allocations.append(allocation_of[color])
    taken_over: set[HloBuffer] = set()
    for buffer in problem.aliasing.buffers if allocation_of else ():
        for value in buffer.values:
            place = preset.place_of.get((value.instruction.name, value.index))
            allocation = allocation_of.get(problem.color_of[value])
            if place is not None and allocation is not None:
                taken_over.add(buffer)
                allocation.slices.update(dict.fromkeys(buffer.values, place))
                break
    return taken_over


def assign_private_stacks(
    problem: Problem, placed: set[HloBuffer], allocations: list[BufferAllocation]
) -> set[HloBuffer]:
    """Let values on the stack of another core begin at 0, whatever else lies there."""
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
