"""Step 4: temporaries are laid end to end, in one allocation per memory space.

In: all allocations. Out: the final list. Mirrors `BufferAssignment::CombineTempAllocations` of
`service/buffer_assignment.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.allocation import OffsetSize
from hlomem.base.quantities import AllocationIndex, ByteCount, Color, Offset

if TYPE_CHECKING:
    from hlomem.assign.allocation import BufferAllocation
    from hlomem.assign.problem import Problem


def combine_temporaries(
    problem: Problem, allocations: list[BufferAllocation]
) -> list[BufferAllocation]:
    """Temporaries go to the end; others keep their places, or change them with a temporary."""
    kept, temporaries = partition(allocations)
    combined: dict[Color, BufferAllocation] = {}
    for temporary in temporaries:
        target = combined.setdefault(temporary.color, temporary)
        if target is temporary:
            continue
        alignment = problem.alignment(temporary.color)
        base = -(-target.size // alignment) * alignment
        target.size = ByteCount(base + temporary.size)
        for value, (offset, size) in temporary.slices.items():
            target.slices[value] = OffsetSize(Offset(base + offset), size)
    stack_colors = problem.options.machine.stack_colors
    on_stacks = [a for color, a in combined.items() if color in stack_colors]
    on_stacks.sort(key=lambda allocation: allocation.size)
    others = [a for color, a in combined.items() if color not in stack_colors]
    return renumbered([*kept, *on_stacks, *others])


def renumbered(allocations: list[BufferAllocation]) -> list[BufferAllocation]:
    """The allocations, with indices by their order."""
    for index, allocation in enumerate(allocations):
        allocation.index = AllocationIndex(index)
    return allocations


def partition(
    allocations: list[BufferAllocation],
) -> tuple[list[BufferAllocation], list[BufferAllocation]]:
    """Permanent and temporary allocations, each in the order `std::partition` leaves them in.

    The first temporary from the front changes places with the last other from the back.
    """
    order = allocations[:]
    first, last = 0, len(order)
    while True:
        while first < last and not order[first].is_preallocated_temp:
            first += 1
        while first < last and order[last - 1].is_preallocated_temp:
            last -= 1
        if first >= last:
            return order[:first], order[first:]
        last -= 1
        order[first], order[last] = order[last], order[first]
        first += 1
