"""Fragmentation: memory reserved for temporaries that is free even at their peak.

For each allocation of temporaries: its size, its peak live bytes, and the free ranges at that step
with the buffer above each, which keeps the allocation from being smaller.

    offset 0 ▒▒▒▒ 40 ████ a 100 ▒▒▒▒▒▒ 160 ████████ b 240      40 + 60 bytes of 240 are holes
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from hlomem.dump.records import Allocation, Record
from hlomem.report.data.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.report.data.buffers import Stay
    from hlomem.report.data.memory import Buffer, MemoryView, Space


class Hole(Record, frozen=True, kw_only=True):
    offset: int
    size: int
    above: str | None
    """The buffer directly above; None at the end of the allocation."""
    above_start: int | None
    above_end: int | None
    before: str | None
    """The previous owner of some of its bytes."""
    before_end: int | None
    after: str | None
    """The next owner of some of its bytes."""
    after_start: int | None


class HoledAllocation(Record, frozen=True, kw_only=True):
    index: int
    size: int
    step: int
    instruction: str | None
    most_alive: int
    """Bytes in use then: a lower bound for every packing of these live ranges."""
    holes: tuple[Hole, ...]
    """Largest first; with `most_alive` they add up to `size`."""


class Holes(Record, frozen=True, kw_only=True):
    name: str
    space: str
    space_size: int
    size: int
    allocations: tuple[HoledAllocation, ...]


def build_holes(memory: MemoryView, space: Space) -> Holes:
    """The holes of every allocation of temporaries, most fragmented first."""
    rows = [
        _allocation(memory, allocation, step)
        for allocation in memory.temporary_allocations(space.color)
        if (step := memory.fullest_step_of(allocation)) is not None
    ]
    rows.sort(key=lambda row: (row.most_alive - row.size, row.index))
    return Holes(
        name=memory.dump.title,
        space=space.name,
        space_size=space.size,
        size=sum(row.size - row.most_alive for row in rows),
        allocations=tuple(rows),
    )


def hint_of(holes: Holes) -> Hint | None:
    what = "fragmentation: free between temporaries at their peak"
    return Hint(size=holes.size, what=what, command="holes") if holes.size else None


def _allocation(memory: MemoryView, allocation: Allocation, step: int) -> HoledAllocation:
    owned, taken = memory.share_out(allocation, step)
    sequence = memory.joined.sequence
    bounds = [(0, 0), *taken, (allocation.size, allocation.size)]
    gaps = [(low, high) for (_, low), (high, _) in pairwise(bounds) if low < high]
    values = memory.stays_in(allocation.index)
    return HoledAllocation(
        index=allocation.index,
        size=allocation.size,
        step=step,
        instruction=sequence[step] if step < len(sequence) else None,
        most_alive=sum(part.size for part in owned),
        holes=tuple(sorted(_holes(values, step, gaps), key=lambda hole: (-hole.size, hole.offset))),
    )


def _holes(
    values: Sequence[Stay | Buffer], step: int, gaps: list[tuple[int, int]]
) -> Iterator[Hole]:
    alive = [value for value in values if value.is_live_at(step) and value.size]
    above: dict[int, Stay | Buffer] = {value.offset: value for value in alive}
    ranges = {(value.offset, value.size) for value in values}
    lows, highs = [low for low, _ in gaps], [high for _, high in gaps]
    touching = {extent for extent in ranges if _touched(lows, highs, *extent)}
    around = [value for value in values if (value.offset, value.size) in touching]
    ended = [value for value in around if value.end is not None and value.end < step]
    to_come = [value for value in around if value.start is not None and value.start > step]
    last = _first_in(
        gaps, sorted(ended, key=lambda value: (-(value.end or 0), -value.size, value.id))
    )
    following = _first_in(
        gaps, sorted(to_come, key=lambda value: (value.start, -value.size, value.id))
    )
    for low, high in gaps:
        top, before, after = above.get(high), last.get(low), following.get(low)
        yield Hole(
            offset=low,
            size=high - low,
            above=top.name if top else None,
            above_start=top.start if top else None,
            above_end=top.end if top else None,
            before=before.name if before else None,
            before_end=before.end if before else None,
            after=after.name if after else None,
            after_start=after.start if after else None,
        )


def _first_in(
    gaps: list[tuple[int, int]], values: Sequence[Stay | Buffer]
) -> dict[int, Stay | Buffer]:
    """The first value that has bytes of each gap, by the gap's offset."""
    found: dict[int, Stay | Buffer] = {}
    lows, highs = [low for low, _ in gaps], [high for _, high in gaps]
    for value in values:
        touched = _touched(lows, highs, value.offset, value.size)
        for number in touched:
            found[lows[number]] = value
        del lows[touched.start : touched.stop], highs[touched.start : touched.stop]
    return found


def _touched(lows: list[int], highs: list[int], offset: int, size: int) -> range:
    return range(bisect_right(highs, offset), bisect_left(lows, offset + size))
