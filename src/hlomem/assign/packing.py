"""The heap: buffers with sizes and times in, offsets out. No HLO in sight.

Mirrors `GlobalDecreasingSizeBestFitHeap` and `ChooseBestHeapAlgorithm` of
`service/heap_simulator/heap_simulator.cc`. Buffers are placed one after the other, each into the
smallest gap that holds it among the bytes free during its whole life, the lowest of equal gaps,
or on top. XLA tries two orders, large buffers first and long-lived buffers first, and keeps the
smaller heap, the first of equals.

    time →     0 1 2 3 4          offsets, alignment 1
    A  8 bytes ■ ■ ■              0
    B  6 bytes     ■ ■ ■          8      (A is alive at 2)
    C  4 bytes       ■ ■          0      (A is gone)
    D  2 bytes ■ ■                8      (B is not yet there)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from heapq import heappop, heappush
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.assign.best_fit import place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class BufferInterval(Struct, eq=False):
    """A buffer and when it is alive. Times include both ends."""

    id: int
    """Unique; decides between equals."""
    size: int
    start: int
    end: int
    colocations: Sequence[tuple[int, int]] = ()
    """Further times during which the same bytes are in use, by values that share them."""


class Packing(NamedTuple):
    """The offset of every buffer, and the size of the heap."""

    offset_by_id: dict[int, int]
    heap_size: int


def spatial_key(buffer: BufferInterval) -> tuple[int, int, int]:
    """Large first, then long-lived first (`GetSpatialBufferIntervalCompare`)."""
    return -buffer.size, buffer.start - buffer.end, buffer.id


def temporal_key(buffer: BufferInterval) -> tuple[int, int, int]:
    """Long-lived first, colocations counted in, then large first (`GetTemporal...Compare`)."""
    start, end = _whole_life(buffer)
    return start - end, -buffer.size, buffer.id


def pack_best(buffers: Sequence[BufferInterval], alignment: int) -> Packing:
    """The smaller of the spatial and the temporal packing (`ChooseBestHeapAlgorithm`)."""
    timeline = _Timeline(buffers)
    spatial = timeline.pack(alignment, spatial_key)
    assert spatial is not None
    if spatial.heap_size <= lower_bound(buffers, alignment):
        return spatial
    return timeline.pack(alignment, temporal_key, below=spatial.heap_size) or spatial


def pack(
    buffers: Sequence[BufferInterval],
    alignment: int,
    key: Callable[[BufferInterval], tuple[int, int, int]],
    below: int | None = None,
) -> Packing | None:
    """Place the buffers in the order of `key`; None as soon as the heap reaches `below` bytes."""
    return _Timeline(buffers).pack(alignment, key, below)


class _Timeline:
    """Buffers and their lives, for packing in several orders."""

    def __init__(self, buffers: Sequence[BufferInterval]) -> None:
        self._buffers = [buffer for buffer in buffers if buffer.size]
        self._empty = [buffer.id for buffer in buffers if not buffer.size]
        self._lives_of = _lives_in_slots(self._buffers)
        self._slot_count = sum(map(len, self._lives_of.values()))

    def pack(
        self,
        alignment: int,
        key: Callable[[BufferInterval], tuple[int, int, int]],
        below: int | None = None,
    ) -> Packing | None:
        """Places the buffers in the order of `key`, as `pack` does."""
        in_order = sorted(self._buffers, key=key)
        sizes = [buffer.size for buffer in in_order]
        lives = [self._lives_of[buffer.id] for buffer in in_order]
        offsets = place(sizes, lives, self._slot_count, alignment, below)
        if offsets is None:
            return None
        ids = [buffer.id for buffer in in_order]
        return Packing(
            dict.fromkeys(self._empty, 0) | dict(zip(ids, offsets, strict=True)),
            max(map(add, offsets, sizes), default=0),
        )


def pack_by_time(buffers: Sequence[BufferInterval], alignment: int) -> Packing:
    """Place buffers as they begin to live, each into the smallest gap there is at that time.

    `FinishFastMerge` of heap_simulator.cc with `FreeChunksManager`. All colocations of a buffer
    count as one life without pauses; a buffer that ends as another begins makes room for it.
    """
    gaps = [(0, _ENDLESS)]  # by offset; no two touch
    taken: list[tuple[int, int, int]] = []  # a heap of: when it ends, begin, end
    offset_by_id: dict[int, int] = {}
    heap_size = 0
    lives = [(*_whole_life(buffer), buffer) for buffer in buffers]
    for start, last, buffer in sorted(lives, key=lambda e: (e[0], -e[2].size, e[2].id)):
        if buffer.size == 0:
            offset_by_id[buffer.id] = 0
            continue
        while taken and taken[0][0] <= start:
            _, begin, end = heappop(taken)
            _free(gaps, begin, end)
        fitting = [
            (gap_end - _align(gap_begin, alignment), gap_begin, gap_end)
            for gap_begin, gap_end in gaps
            if gap_end - _align(gap_begin, alignment) >= buffer.size
        ]
        _, begin, gap_end = min(fitting)
        offset = offset_by_id[buffer.id] = _align(begin, alignment)
        end = offset + buffer.size
        number = gaps.index((begin, gap_end))
        gaps[number : number + 1] = [(end, gap_end)] if end < gap_end else []
        heappush(taken, (last, begin, end))
        heap_size = max(heap_size, end)
    return Packing(offset_by_id, heap_size)


_ENDLESS = 1 << 62
_DENSE = 8
"""Times are looked up in a table if they are no more than this many times the beginnings."""


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _whole_life(buffer: BufferInterval) -> tuple[int, int]:
    """The time from the first beginning to the last end of the values in one place."""
    times = ((buffer.start, buffer.end), *buffer.colocations)
    return min(start for start, _ in times), max(end for _, end in times)


def _free(gaps: list[tuple[int, int]], begin: int, end: int) -> None:
    """Add a gap, joined with those it touches."""
    first = bisect_left(gaps, (begin, end))
    stop = first
    if stop < len(gaps) and gaps[stop][0] == end:
        end = gaps[stop][1]
        stop += 1
    if first and gaps[first - 1][1] == begin:
        first -= 1
        begin = gaps[first][0]
    gaps[first:stop] = [(begin, end)]


def lower_bound(buffers: Sequence[BufferInterval], alignment: int) -> int:
    """Bytes no packing can do without: the most that is alive at one time.

    All but the topmost buffer of a moment end at a multiple of the alignment, so the largest
    padding may be missing once.
    """
    change_at: defaultdict[int, int] = defaultdict(int)  # bytes that begin or end at a time
    largest_padding = 0
    for buffer in buffers:
        size = buffer.size
        padding = -size % alignment
        if padding > largest_padding:
            largest_padding = padding
        padded = size + padding
        times = _disjoint(buffer) if buffer.colocations else ((buffer.start, buffer.end),)
        for start, end in times:
            change_at[start] += padded
            change_at[end + 1] -= padded
    live = accumulate([change_at[time] for time in sorted(change_at)])
    return max(live, default=0) - largest_padding


def _disjoint(buffer: BufferInterval) -> list[tuple[int, int]]:
    """The times of a buffer, its colocations' included, with overlapping ones merged."""
    times: list[tuple[int, int]] = []
    for start, end in sorted(((buffer.start, buffer.end), *buffer.colocations)):
        if times and start <= times[-1][1]:
            times[-1] = times[-1][0], max(times[-1][1], end)
        else:
            times.append((start, end))
    return times


def _lives_in_slots(buffers: Sequence[BufferInterval]) -> dict[int, list[tuple[int, int]]]:
    """The lives of each buffer in slots, by id: time counted in beginnings only.

    Two lives meet exactly if one begins during the other.
    """
    times_of = {
        buffer.id: ((buffer.start, buffer.end), *buffer.colocations)
        if buffer.colocations
        else ((buffer.start, buffer.end),)
        for buffer in buffers
    }
    starts = {start for times in times_of.values() for start, _ in times}
    slot_at = _slots(starts, max((e for times in times_of.values() for _, e in times), default=0))
    return {
        buffer_id: [(slot_at(start), slot_at(end)) for start, end in times]
        for buffer_id, times in times_of.items()
    }


def _slots(starts: set[int], end: int) -> Callable[[int], int]:
    """The slot of a time: how many beginnings there are until then, less one."""
    if min(starts, default=0) >= 0 and end <= _DENSE * len(starts):  # as the simulator counts
        begins = bytearray(end + 1)
        for start in starts:
            begins[start] = 1
        return list(accumulate(begins, initial=-1))[1:].__getitem__
    in_order = sorted(starts)
    return lambda time: bisect_right(in_order, time) - 1
