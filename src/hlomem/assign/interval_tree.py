"""The bytes in use during an interval of time slots.

XLA queries a balanced tree of buffers for those that overlap in time
(`heap_simulator.cc: BufferIntervalTree`). Only the bytes matter, so this keeps merged byte ranges:
the fuller the heap, the fewer. Their begins and ends are separate lists, because lists of plain
numbers sort fastest, and two sorted lists determine the gaps.

A byte in use during an interval is in use at its first slot, or becomes so later: one tree over
time, `covering`, answers for the first slot, another, `within`, for the begins in all others. Their
leaves are blocks of slots; ranges that begin or end in the first block, or begin in the last, are
checked one by one.

    slots      0   1   2   3          bytes taken
    A          ■   ■                  [0, 64)
    B                  ■   ■          [0, 32)
    C              ■                  [64, 96)
    collect(2, 3): [0, 32)    collect(1, 2): [0, 64), taken at 1; [64, 96) and [0, 32), begin later
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

_BLOCK_BITS = 5  # slots per block: 32
_FAN_BITS = 2  # nodes per node above: 4
_FAN_MASK = (1 << _FAN_BITS) - 1

_Ranges = tuple[list[float], list[float]]
"""The begins and exclusive ends of sorted, disjoint byte ranges; floats, which sort fastest."""
_Level = list[_Ranges]


class IntervalTree:
    """Byte ranges over time slots 0 to `slot_count` - 1."""

    __slots__ = ("_begun", "_covering", "_ended", "_within")

    def __init__(self, slot_count: int) -> None:
        block_count = (slot_count >> _BLOCK_BITS) + 1
        # Ranges that begin in a block: first and last slot, first byte and end.
        self._begun: list[list[tuple[int, int, float, float]]] = [[] for _ in range(block_count)]
        # Ranges that end in a block and begin before it: last slot, first byte and end.
        self._ended: list[list[tuple[int, float, float]]] = [[] for _ in range(block_count)]
        # Ranges that neither begin nor end in a node's blocks, unless a node above has them:
        self._covering = _make_levels(block_count)
        # Ranges that begin in a node's blocks:
        self._within = _make_levels(block_count)

    def add(self, first: int, last: int, begin: float, end: float) -> None:
        """Occupy the bytes [begin, end) during slots `first` to `last`."""
        low, high = first >> _BLOCK_BITS, last >> _BLOCK_BITS
        self._begun[low].append((first, last, begin, end))
        node = low
        for level in self._within:
            if not _merge(level[node], begin, end):
                break  # unchanged here, unchanged above
            node >>= _FAN_BITS
        if low == high:
            return
        self._ended[high].append((last, begin, end))
        for ranges in _nodes(self._covering, low + 1, high):
            _merge(ranges, begin, end)

    def collect(self, first: int, last: int, begins: list[float], ends: list[float]) -> None:
        """Append the begins and ends of ranges in use during some slots, each in any order."""
        low, high = first >> _BLOCK_BITS, last >> _BLOCK_BITS
        begun = [entry for entry in self._begun[low] if entry[1] >= first and entry[0] <= last]
        if low != high:
            begun += [entry for entry in self._begun[high] if entry[0] <= last]
        if begun:
            begins += [entry[2] for entry in begun]
            ends += [entry[3] for entry in begun]
        ended = [entry for entry in self._ended[low] if entry[0] >= first]
        if ended:
            begins += [entry[1] for entry in ended]
            ends += [entry[2] for entry in ended]
        node = low
        for level in self._covering:
            begins_of, ends_of = level[node]
            begins += begins_of
            ends += ends_of
            node >>= _FAN_BITS
        for begins_of, ends_of in _nodes(self._within, low + 1, high):
            begins += begins_of
            ends += ends_of


def _make_levels(block_count: int) -> list[_Level]:
    """Empty nodes: one per block, one per four blocks, up to one for all."""
    levels: list[_Level] = [[([], []) for _ in range(block_count)]]
    while len(levels[-1]) > 1:
        count = (len(levels[-1]) + _FAN_MASK) >> _FAN_BITS
        levels.append([([], []) for _ in range(count)])
    return levels


def _nodes(levels: list[_Level], low: int, high: int) -> _Level:
    """The fewest nodes that make up the blocks [low, high)."""
    nodes: _Level = []
    for level in levels:
        above_low, above_high = (low + _FAN_MASK) >> _FAN_BITS, high >> _FAN_BITS
        if above_low >= above_high:
            nodes += level[low:high]
            break
        nodes += level[low : above_low << _FAN_BITS]
        nodes += level[above_high << _FAN_BITS : high]
        low, high = above_low, above_high
    return nodes


def _merge(ranges: _Ranges, begin: float, end: float) -> bool:
    """Add a range; whether that changed the union."""
    begins, ends = ranges
    low, high = bisect_left(ends, begin), bisect_right(begins, end)  # those it touches
    if low >= high:
        begins.insert(low, begin)
        ends.insert(low, end)
        return True
    first, last = begins[low], ends[high - 1]
    if first <= begin and ends[low] >= end:
        return False
    if first < begin:
        begin = first
    if last > end:
        end = last
    begins[low:high] = [begin]
    ends[low:high] = [end]
    return True
