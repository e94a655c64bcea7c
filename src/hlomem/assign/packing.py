"""Heap packing: buffers with sizes and times in, offsets out; independent of HLO.

Mirrors `GlobalDecreasingSizeBestFitHeap` and `ChooseBestHeapAlgorithm` of
`service/heap_simulator/heap_simulator.cc`. Buffers are placed by best fit in two orders, by size
and by length of life; the smaller heap wins, the first of equal ones.

    time →     0 1 2 3 4          offsets, alignment 1
    A  8 bytes ■ ■ ■              0
    B  6 bytes     ■ ■ ■          8      (A is live at 2)
    C  4 bytes       ■ ■          0      (A is dead)
    D  2 bytes ■ ■                8      (B is not live yet)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from operator import add, neg, sub
from typing import TYPE_CHECKING, overload

from msgspec import Struct

from hlomem.assign.best_fit import Life, place

if TYPE_CHECKING:
    Keys = Callable[["Intervals"], Iterable[tuple[int, int, int]]]
    """A sort key for each buffer, which ends in its id."""


class BufferInterval(Struct, eq=False):
    """A buffer and its live range, both ends included."""

    id: int
    """Unique; breaks ties."""
    size: int
    start: int
    end: int
    colocations: Sequence[tuple[int, int]] = ()
    """Live ranges of other values that share the bytes."""


class Intervals(Sequence[BufferInterval]):
    """Buffers by columns, and as a sequence."""

    __slots__ = ("ends", "ids", "shared", "sizes", "starts")

    def __init__(
        self,
        ids: Sequence[int],
        sizes: Sequence[int],
        starts: Sequence[int],
        ends: Sequence[int],
        shared: Mapping[int, Sequence[tuple[int, int]]],
    ) -> None:
        """`shared` holds colocations by index."""
        self.ids = ids
        self.sizes = sizes
        self.starts = starts
        self.ends = ends
        self.shared = shared

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[BufferInterval]:
        return map(self.__getitem__, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> BufferInterval: ...
    @overload
    def __getitem__(self, index: slice) -> list[BufferInterval]: ...
    def __getitem__(self, index: int | slice) -> BufferInterval | list[BufferInterval]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        return BufferInterval(
            self.ids[index],
            self.sizes[index],
            self.starts[index],
            self.ends[index],
            self.shared.get(range(len(self))[index], ()),
        )


def by_columns(buffers: Sequence[BufferInterval]) -> Intervals:
    if isinstance(buffers, Intervals):
        return buffers
    return Intervals(
        [buffer.id for buffer in buffers],
        [buffer.size for buffer in buffers],
        [buffer.start for buffer in buffers],
        [buffer.end for buffer in buffers],
        {number: buffer.colocations for number, buffer in enumerate(buffers) if buffer.colocations},
    )


class Packing(Struct, frozen=True):
    offset_by_id: dict[int, int]
    heap_size: int


def spatial_keys(buffers: Intervals) -> Iterable[tuple[int, int, int]]:
    """By decreasing size, then length of life (`GetSpatialBufferIntervalCompare`)."""
    return zip(
        map(neg, buffers.sizes), map(sub, buffers.starts, buffers.ends), buffers.ids, strict=True
    )


def temporal_keys(buffers: Intervals) -> Iterable[tuple[int, int, int]]:
    """By decreasing length of life with colocations, then size (`GetTemporal...Compare`)."""
    starts, ends = list(buffers.starts), list(buffers.ends)
    for number, times in buffers.shared.items():
        starts[number] = min(starts[number], *(start for start, _ in times))
        ends[number] = max(ends[number], *(end for _, end in times))
    return zip(map(sub, starts, ends), map(neg, buffers.sizes), buffers.ids, strict=True)


def pack_best(buffers: Sequence[BufferInterval], alignment: int) -> Packing:
    """The smaller of the spatial and the temporal packing (`ChooseBestHeapAlgorithm`)."""
    columns = by_columns(buffers)
    timeline = _Timeline(columns)
    spatial = timeline.pack(alignment, spatial_keys)
    assert spatial is not None
    if spatial.heap_size <= lower_bound(columns, alignment):
        return spatial
    return timeline.pack(alignment, temporal_keys, below=spatial.heap_size) or spatial


def pack(
    buffers: Sequence[BufferInterval], alignment: int, keys: Keys, below: int | None = None
) -> Packing | None:
    """Place the buffers in the order of `keys`; None once the heap reaches `below` bytes."""
    return _Timeline(by_columns(buffers)).pack(alignment, keys, below)


class _Timeline:
    def __init__(self, buffers: Intervals) -> None:
        self._empty: list[int] = []
        if 0 in buffers.sizes:
            self._empty = [buffer.id for buffer in buffers if not buffer.size]
            buffers = by_columns([buffer for buffer in buffers if buffer.size])
        self._buffers = buffers
        self._lives = _lives_in_slots(buffers)
        self._slot_count = sum(map(len, self._lives))

    def pack(self, alignment: int, keys: Keys, below: int | None = None) -> Packing | None:
        buffers, lives = self._buffers, self._lives
        number_of = dict(zip(buffers.ids, range(len(buffers)), strict=True))
        ids = [buffer_id for _, _, buffer_id in sorted(keys(buffers))]
        order = list(map(number_of.__getitem__, ids))
        sizes = [buffers.sizes[number] for number in order]
        offsets = place(
            sizes, [lives[number] for number in order], self._slot_count, alignment, below
        )
        if offsets is None:
            return None
        return Packing(
            dict.fromkeys(self._empty, 0) | dict(zip(ids, offsets, strict=True)),
            max(map(add, offsets, sizes), default=0),
        )


def pack_by_time(buffers: Sequence[BufferInterval], alignment: int) -> Packing:
    """Place buffers by start, each into the smallest sufficient gap at that time.

    `FinishFastMerge` of heap_simulator.cc with `FreeChunksManager`. Colocations count as one
    contiguous live range; a buffer is freed before another one begins at the same time.
    """
    gaps = [(0, _ENDLESS)]  # by offset, not adjacent
    taken: list[tuple[int, int, int]] = []  # a heap of (end of life, begin, end)
    offset_by_id: dict[int, int] = {}
    heap_size = 0
    lives = [(*_life_span(buffer), buffer) for buffer in buffers]
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
"""Times are looked up in a table if there are at most this many per start."""


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _life_span(buffer: BufferInterval) -> tuple[int, int]:
    """The first start and last end of a buffer and its colocations."""
    times = ((buffer.start, buffer.end), *buffer.colocations)
    return min(start for start, _ in times), max(end for _, end in times)


def _free(gaps: list[tuple[int, int]], begin: int, end: int) -> None:
    """Add a gap, merged with adjacent ones."""
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
    """The most bytes live at one time; only the topmost buffer may lack its padding."""
    columns = by_columns(buffers)
    change_at = _changes(columns)
    padded = [-(-size // alignment) * alignment for size in columns.sizes]
    for start, end, size in zip(columns.starts, columns.ends, padded, strict=True):
        change_at[start] += size
        change_at[end + 1] -= size
    for number in columns.shared:  # also live at other times, but counted once
        buffer, size = columns[number], padded[number]
        change_at[buffer.start] -= size
        change_at[buffer.end + 1] += size
        for start, end in _disjoint(buffer):
            change_at[start] += size
            change_at[end + 1] -= size
    if isinstance(change_at, dict):
        change_at = [change_at[time] for time in sorted(change_at)]
    live = accumulate(change_at)
    return max(live, default=0) - max(map(sub, padded, columns.sizes), default=0)


def _changes(buffers: Intervals) -> list[int] | defaultdict[int, int]:
    """Zeros by time: a list if times are dense."""
    more = [time for times in buffers.shared.values() for time in times]
    last = max([*buffers.ends, *(end for _, end in more)], default=0)
    first = min([*buffers.starts, *(start for start, _ in more)], default=0)
    is_dense = first >= 0 and last <= _DENSE * len(buffers)
    return [0] * (last + 2) if is_dense else defaultdict(int)


def _disjoint(buffer: BufferInterval) -> list[tuple[int, int]]:
    """The live ranges of a buffer and its colocations, merged where they overlap."""
    times: list[tuple[int, int]] = []
    for start, end in sorted(((buffer.start, buffer.end), *buffer.colocations)):
        if times and start <= times[-1][1]:
            times[-1] = times[-1][0], max(times[-1][1], end)
        else:
            times.append((start, end))
    return times


def _lives_in_slots(buffers: Intervals) -> list[tuple[Life, ...]]:
    """The live ranges in slots, which count only starts, enough to tell whether two overlap."""
    more = [time for times in buffers.shared.values() for time in times]
    starts = {*buffers.starts, *(start for start, _ in more)}
    slot_at = _slots(starts, max([*buffers.ends, *(end for _, end in more)], default=0))
    own = zip(map(slot_at, buffers.starts), map(slot_at, buffers.ends), strict=True)
    lives: list[tuple[Life, ...]] = list(zip(own, strict=True))
    for number, times in buffers.shared.items():
        lives[number] += tuple([(slot_at(start), slot_at(end)) for start, end in times])
    return lives


def _slots(starts: set[int], end: int) -> Callable[[int], int]:
    """The slot of a time: the number of starts up to it, less one."""
    if min(starts, default=0) >= 0 and end <= _DENSE * len(starts):  # as in the simulator
        begins = bytearray(end + 1)
        for start in starts:
            begins[start] = 1
        return list(accumulate(begins, initial=-1))[1:].__getitem__
    in_order = sorted(starts)
    return lambda time: bisect_right(in_order, time) - 1
