"""Step 2: waiting temporaries are packed into one heap per memory space.

In: the buffers that are left, and how to pack. Out: an allocation for each memory space. Mirrors
`BufferAssigner::AssignBuffersWithSequentialOrdering` of `service/buffer_assignment.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.allocation import BufferAllocation
from hlomem.assign.packing import pack_best, pack_by_time
from hlomem.assign.simulator import HeapSimulator
from hlomem.base.quantities import AllocationIndex, Color

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.assign.problem import Problem
    from hlomem.assign.simulator import Life, Pack


def assign_heaps(
    problem: Problem,
    waiting: list[HloBuffer],
    pack: Pack | None,
    allocations: list[BufferAllocation],
) -> None:
    """Pack temporaries; without `pack`, as XLA does."""
    lives_by_color = _lives_by_color(problem, waiting)
    for color in sorted(lives_by_color):
        simulator = HeapSimulator(
            lives_by_color[color], problem.aliasing.united, problem.timeless.sharing
        )
        algorithm = pack or _own_pack(problem, color)
        heap = simulator.run(problem.alignment(color), algorithm)
        index = AllocationIndex(len(allocations))
        allocations.append(BufferAllocation(index, heap.heap_size, color, heap.slices))


def _lives_by_color(problem: Problem, waiting: list[HloBuffer]) -> dict[Color, list[Life]]:
    """The values to pack, in any order."""
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


def _own_pack(problem: Problem, color: Color) -> Pack:
    """XLA's algorithm: only a memory whose size it knows is packed fast."""
    return pack_by_time if color in problem.options.fast_merge_colors else pack_best
