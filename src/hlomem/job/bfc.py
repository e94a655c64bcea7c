"""A twin of XLA's best-fit allocator with coalescing: the same calls get the same addresses.

In: sizes that are asked for, addresses that are given back. Out: addresses, bytes in use, the pool.
Follows xla/tsl/framework/bfc_allocator.cc. Sizes are whole multiples of 256 bytes. Free chunks lie
in 21 bins by size, in each by size and address, and the first that suffices is taken; it is split
where it is at least twice as large as the request or 128 MiB would be left over, else the whole
chunk is handed out, so that bytes in use are more than was asked for. A chunk that is given back
merges with its free neighbours. Where nothing suffices, another region is taken from the driver,
each twice as large as the one before and never more than the limit leaves; regions neither merge
nor go back (PJRT leaves garbage collection off).

A pool that is taken at once has one region. Since 2026 it is partitioned: the untouched rest, the
gap, is in no bin, serves what no hole can, and takes back what is given back at its edge. Before,
the region was one free chunk. Memory of collectives, which comes from the upper end, is not here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import HlomemError

if TYPE_CHECKING:
    from collections.abc import Callable

GRAIN = 256
"""Bytes that every size is a multiple of."""
_BINS = 21
_WORTH_SPLITTING = 128 << 20
_FIRST_REGION = 2 << 20
_REGION_STRIDE = 1 << 44
"""The distance between regions whose addresses are not known."""


class PoolExhaustedError(HlomemError):
    """A request the allocator cannot serve."""

    def __init__(self, size: int) -> None:
        super().__init__(f"no room for {size} bytes")
        self.size = size


class Chunk:
    """A piece of a region: in use or free."""

    __slots__ = ("after", "before", "is_gap", "is_used", "size", "start")

    def __init__(self, start: int, size: int, is_gap: bool) -> None:
        self.start = start
        self.size = size
        self.is_gap = is_gap
        self.is_used = False
        self.before: Chunk | None = None
        self.after: Chunk | None = None


class Region(NamedTuple):
    """Memory taken from the driver at once."""

    start: int
    size: int


def rounded(size: int) -> int:
    """A size as the allocator counts it."""
    return -(-size // GRAIN) * GRAIN


def _order(chunk: Chunk) -> tuple[int, int]:
    return chunk.size, chunk.start


def _bin_of(size: int) -> int:
    return min(_BINS - 1, max(size // GRAIN, 1).bit_length() - 1)


class BfcAllocator:
    """The allocator: a pool that grows up to a limit, or is taken at once."""

    def __init__(
        self,
        limit: int,
        *,
        grows: bool = True,
        is_partitioned: bool | None = None,
        region_at: Callable[[int], int] | None = None,
    ) -> None:
        """`region_at(size)` is the address of a new region; without it regions lie apart."""
        self.limit = limit
        self.is_partitioned = not grows if is_partitioned is None else is_partitioned
        self.regions: list[Region] = []
        self.in_use = self.peak = self.pool = 0
        self._next_region = rounded(min(limit, _FIRST_REGION) if grows else limit)
        self._bins: list[list[Chunk]] = [[] for _ in range(_BINS)]
        self._used: dict[int, Chunk] = {}
        self._gap: Chunk | None = None
        self._region_at = region_at

    # What it is asked

    def allocate(self, size: int) -> int | None:
        """The address of so many bytes; None for no bytes at all."""
        if not size:
            return None
        needed = rounded(size)
        chunk = self._find(needed)
        if chunk is None and self._extend(needed):
            chunk = self._find(needed)
        if chunk is None:
            raise PoolExhaustedError(size)
        chunk.is_used, chunk.is_gap = True, False
        self._used[chunk.start] = chunk
        self.in_use += chunk.size
        self.peak = max(self.peak, self.in_use)
        return chunk.start

    def free(self, address: int | None) -> None:
        """Give back what `allocate` gave."""
        if address is None:
            return
        chunk = self._used.pop(address)
        chunk.is_used = False
        self.in_use -= chunk.size
        after, before = chunk.after, chunk.before
        chunk.is_gap = self.is_partitioned and (after is None or after.is_gap)
        if after is not None and not after.is_used:
            self._take_out(after)
            _merge(chunk, after)
        if before is not None and not before.is_used:
            self._take_out(before)
            _merge(before, chunk)
            chunk = before
        self._put_in(chunk)

    def chunk_at(self, address: int) -> Chunk:
        """The chunk in use at an address."""
        return self._used[address]

    def has(self, address: int) -> bool:
        """Whether a chunk in use begins at an address."""
        return address in self._used

    @property
    def largest_free(self) -> int:
        """Bytes of the largest free chunk of the pool."""
        gap = self._gap.size if self._gap else 0
        return max([gap, *(chunks[-1].size for chunks in self._bins if chunks)])

    @property
    def growth_left(self) -> int:
        """Bytes the pool can still grow by."""
        return (self.limit - self.pool) // GRAIN * GRAIN

    @property
    def largest_possible(self) -> int:
        """The largest request that would be served now."""
        return max(self.largest_free, self.growth_left)

    @property
    def fragmentation(self) -> float:
        """The share of free bytes that are not in the largest chunk; 0 where none is free."""
        free = self.pool - self.in_use
        return (free - self.largest_free) / free if free else 0.0

    # Regions

    def _extend(self, needed: int) -> bool:
        """Follows `Extend`: a region of at least `needed` bytes, if the limit leaves it."""
        available = self.growth_left
        if needed > available:
            return False
        fits = needed <= self._next_region
        while needed > self._next_region:
            self._next_region *= 2
        size = min(self._next_region, available)
        if fits:
            self._next_region *= 2
        start = (len(self.regions) + 1) * _REGION_STRIDE
        if self._region_at is not None:
            start = self._region_at(size)
        self.regions.append(Region(start, size))
        self.pool += size
        self._put_in(Chunk(start, size, self.is_partitioned))
        return True

    # Chunks

    def _find(self, needed: int) -> Chunk | None:
        """Follows `FindChunkPtr`: a hole, else the gap."""
        for chunks in self._bins[_bin_of(needed) :]:
            place = bisect_left(chunks, (needed, 0), key=_order)
            if place < len(chunks):
                return self._carve(chunks.pop(place), needed)
        gap = self._gap
        if gap is None or gap.size < needed:
            return None
        self._gap = None
        return self._carve(gap, needed)

    def _carve(self, chunk: Chunk, needed: int) -> Chunk:
        """The part of a free chunk that is handed out; the rest stays free."""
        if chunk.size >= 2 * needed or chunk.size - needed >= _WORTH_SPLITTING:
            self._put_in(_split(chunk, needed))
        return chunk

    def _put_in(self, chunk: Chunk) -> None:
        if chunk.is_gap:
            self._gap = chunk
        else:
            insort(self._bins[_bin_of(chunk.size)], chunk, key=_order)

    def _take_out(self, chunk: Chunk) -> None:
        if self._gap is chunk:
            self._gap = None
            return
        chunks = self._bins[_bin_of(chunk.size)]
        del chunks[bisect_left(chunks, _order(chunk), key=_order)]


def _split(chunk: Chunk, size: int) -> Chunk:
    """Cut a chunk after `size` bytes; the second part is new."""
    rest = Chunk(chunk.start + size, chunk.size - size, chunk.is_gap)
    rest.before, rest.after = chunk, chunk.after
    if chunk.after is not None:
        chunk.after.before = rest
    chunk.after, chunk.size = rest, size
    return rest


def _merge(first: Chunk, second: Chunk) -> None:
    """Make two free neighbours one, which is the gap where one of them is."""
    first.after, first.size = second.after, first.size + second.size
    if second.after is not None:
        second.after.before = first
    first.is_gap |= second.is_gap
