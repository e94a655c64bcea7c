"""The heap of a program's temporaries as CSV in MiniMalloc's format, as `hlomem pack` reads it.

    id,lower,upper,size,alignment,offset
    17,3,9,4096,512,0

A buffer is alive in [lower, upper); `offset` is XLA's. Values that XLA put into the same bytes
while both are alive are one row, named after the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.disjoint_sets import DisjointSets
from hlomem.base.errors import CommandError
from hlomem.base.quantities import Offset, Step
from hlomem.view.sweep import Residency, iter_sharing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.report.data.memory import MemoryView, Space

    Block = Residency[int]
HEADER = "id,lower,upper,size,alignment,offset"


def heap_of_memory(memory: MemoryView, space: Space) -> bytes:
    """The largest heap of a memory space."""
    heaps = [heap for heap in memory.temporary_allocations(space.color) if memory.placed_in(heap)]
    if not heaps or memory.dump.live_ranges is None:
        why = "has no temporaries" if not heaps else "needs the live ranges, which this dump lacks"
        raise CommandError(f"a heap of {space.name} {why}")
    largest = max(heaps, key=lambda heap: heap.size)
    alignment = memory.machine.alignment(space.color) or 1
    rows = [
        _row(block, alignment)
        for block in _merged(
            Residency(
                stay.start, stay.end, number, stay.offset, Offset(stay.offset + stay.size), stay.id
            )
            for number, stay in enumerate(memory.stays_in(largest.index))
            if stay.start is not None and stay.end is not None and stay.size
        )
    ]
    return "\n".join([HEADER, *rows, ""]).encode()


def _row(block: Block, alignment: int) -> str:
    size = block.end - block.start
    return f"{block.who},{block.first},{block.last + 1},{size},{alignment},{block.start}"


def _merged(blocks: Iterable[Block]) -> list[Block]:
    """Blocks of which no two share bytes: those that do become one, until none is left."""
    left = {block.number: block for block in blocks}
    while pairs := [(one.number, other.number) for one, other in iter_sharing(left.values())]:
        sets = DisjointSets[int]()
        for one, other in pairs:
            sets.unite(one, other)
        left = {
            members[0]: _hull([left[member] for member in members])
            for members in sets.groups(left).values()
        }
    return list(left.values())


def _hull(blocks: list[Block]) -> Block:
    return Residency(
        Step(min(block.first for block in blocks)),
        Step(max(block.last for block in blocks)),
        blocks[0].number,
        Offset(min(block.start for block in blocks)),
        Offset(max(block.end for block in blocks)),
        blocks[0].who,
    )
