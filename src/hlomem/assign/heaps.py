"""Step 2: waiting temporaries are packed into one heap per memory space.

In: the values that are left, and how to pack. Out: an allocation for each memory space. Mirrors
`BufferAssigner::AssignBuffersWithSequentialOrdering` of `service/buffer_assignment.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.allocation import BufferAllocation
from hlomem.assign.packing import pack_best, pack_by_time
from hlomem.assign.simulator import HeapSimulator
from hlomem.base.quantities import AllocationIndex, Color

if TYPE_CHECKING:
    from hlomem.analysis.values import HloValue
    from hlomem.assign.problem import Problem
    from hlomem.assign.simulator import Pack


def assign_heaps(
    problem: Problem,
    waiting: list[HloValue],
    pack: Pack | None,
    allocations: list[BufferAllocation],
) -> None:
    """Pack temporaries; without `pack`, as XLA does."""
    by_color: dict[Color, list[HloValue]] = {}
    if waiting and (only := problem.timeless.only_color) is not None:
        by_color[only] = waiting
    else:
        for value in waiting:
            by_color.setdefault(problem.color_of[value], []).append(value)
    for color in sorted(by_color):
        simulator = HeapSimulator(
            by_color[color],
            problem.live_ranges.range_of,
            problem.timeless.size_of_value,
            problem.aliasing.united,
            problem.timeless.sharing,
        )
        algorithm = pack or _own_pack(problem, color)
        heap = simulator.run(problem.alignment(color), algorithm)
        index = AllocationIndex(len(allocations))
        allocations.append(BufferAllocation(index, heap.heap_size, color, heap.slices))


def _own_pack(problem: Problem, color: Color) -> Pack:
    """XLA's algorithm: only a memory whose size it knows is packed fast."""
    return pack_by_time if color in problem.options.fast_merge_colors else pack_best
