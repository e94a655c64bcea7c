"""Which bytes are taken during a stretch of time.

In: byte ranges, each taken during an inclusive interval of time slots. Out: for an interval, byte
ranges that together are what is taken at any moment of it.

XLA asks a balanced tree of buffers for every one that overlaps in time
(`heap_simulator.cc: BufferIntervalTree`). The question is only which bytes, so this segment tree
over time keeps merged ranges instead of buffers: the fuller the heap, the fewer there are. Its
leaves are blocks of slots; what covers a block in part is kept by the part it covers.

    slots      0   1   2   3          bytes taken
    A          ■   ■                  [0, 64)
    B                  ■   ■          [0, 32)
    C              ■                  [64, 96)
    taken(2, 3): [0, 32)    taken(1, 2): [0, 64) and [64, 96) and [0, 32), or [0, 96)
"""

from __future__ import annotations

from bisect import bisect_left

ByteRange = tuple[float, float]
"""[begin, end). Floats, because lists of floats sort fastest; they are exact up to 2 ** 53."""

_BLOCK_BITS = 5  # slots per block: 32
_BLOCK_MASK = (1 << _BLOCK_BITS) - 1


class IntervalTree:
    """Byte ranges over time slots 0 to `slot_count` - 1."""

    __slots__ = ("_covering", "_leaf_count", "_partial", "_within")

    def __init__(self, slot_count: int) -> None:
        block_count = (slot_count >> _BLOCK_BITS) + 1
        self._leaf_count = 1 << max(block_count - 1, 0).bit_length()
        # Node 1 is the whole time, nodes 2n and 2n + 1 the halves of node n.
        # Taken during all of a node's time, as far as no node above says so already:
        self._covering: list[list[ByteRange] | None] = [None] * (2 * self._leaf_count)
        # Taken at some moment of a node's time:
        self._within: list[list[ByteRange] | None] = [None] * (2 * self._leaf_count)
        # Taken during a part of a block, by first and last slot of the part:
        self._partial: list[dict[tuple[int, int], list[ByteRange]]] = [
            {} for _ in range(block_count)
        ]

    def add(self, first: int, last: int, taken: ByteRange) -> None:
        """Take some bytes during slots `first` to `last`."""
        low, high = first >> _BLOCK_BITS, last >> _BLOCK_BITS
        covers_low, covers_high = not first & _BLOCK_MASK, not (last + 1) & _BLOCK_MASK
        if not covers_low or (low == high and not covers_high):
            self._add_partial(low, first, last, taken)
            low += 1
        if not covers_high and low <= high:
            self._add_partial(high, first, last, taken)
            high -= 1
        left, right = low + self._leaf_count, high + self._leaf_count + 1
        while left < right:
            if left & 1:
                _unite(self._covering, left, taken)
                self._raise(left, taken)
                left += 1
            if right & 1:
                right -= 1
                _unite(self._covering, right, taken)
                self._raise(right, taken)
            left >>= 1
            right >>= 1

    def _add_partial(self, block: int, first: int, last: int, taken: ByteRange) -> None:
        part = max(first, block << _BLOCK_BITS), min(last, (block << _BLOCK_BITS) + _BLOCK_MASK)
        ranges = self._partial[block].get(part)
        if ranges is None:
            self._partial[block][part] = [taken]
        else:
            _merge(ranges, taken)
        self._raise(block + self._leaf_count, taken)

    def _raise(self, node: int, taken: ByteRange) -> None:
        """Tell a node and those above it that bytes are taken within their time."""
        # Where nothing changes, nothing changes above.
        while node and _unite(self._within, node, taken):
            node >>= 1

    def collect(self, first: int, last: int, found: list[ByteRange]) -> None:
        """Append what is taken at any moment of slots `first` to `last`, in any order."""
        covering, within = self._covering, self._within
        low, high = first >> _BLOCK_BITS, last >> _BLOCK_BITS
        for block in (low,) if low == high else (low, high):
            for (part_first, part_last), ranges in self._partial[block].items():
                if part_first <= last and part_last >= first:
                    found += ranges
        left, right = low + 1 + self._leaf_count, high + self._leaf_count
        while left < right:
            if left & 1:
                found += within[left] or ()
                left += 1
            if right & 1:
                right -= 1
                found += within[right] or ()
            left >>= 1
            right >>= 1
        low += self._leaf_count
        high += self._leaf_count
        while low != high:
            found += covering[low] or ()
            found += covering[high] or ()
            low >>= 1
            high >>= 1
        while low:
            found += covering[low] or ()
            low >>= 1


def _unite(nodes: list[list[ByteRange] | None], node: int, taken: ByteRange) -> bool:
    """Unite a node's ranges with one more; say if that is news."""
    ranges = nodes[node]
    if ranges is None:
        nodes[node] = [taken]
        return True
    return _merge(ranges, taken)


def _merge(ranges: list[ByteRange], taken: ByteRange) -> bool:
    """Unite ranges, which are sorted and apart, with one more; say if that is news."""
    begin, end = taken
    low = high = bisect_left(ranges, (begin,))
    if low and ranges[low - 1][1] >= begin:
        low -= 1
        begin = ranges[low][0]
        if ranges[low][1] >= end:
            return False
    while high < len(ranges) and ranges[high][0] <= end:
        end = max(end, ranges[high][1])
        high += 1
    if high - low == 1 and ranges[low] == (begin, end):
        return False
    ranges[low:high] = [(begin, end)]
    return True
