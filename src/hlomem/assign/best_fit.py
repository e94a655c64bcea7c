"""Best fit: buffers in the order in which they are placed in; their offsets out.

Each goes into the smallest gap that holds it among the bytes free during its whole life, the lowest
of equal gaps, or on top: `FindUnslicedChunkCandidates` of
`service/heap_simulator/heap_simulator.cc`. There are two of it: `place_in_lists` needs nothing but
Python; `_heap.c`, where it was built, is several times as fast and gives the same offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.interval_tree import IntervalTree
from hlomem.base.native import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Life = tuple[int, int]
"""The first and the last slot of a stretch of time."""
_place: Callable[..., list[int] | None] | None = kernel("hlomem.assign._heap", "place")
IS_NATIVE = _place is not None
_EXACT = 1 << 53
"""Below this floats count bytes exactly, and sums of native numbers do not overflow."""


def place(
    sizes: Sequence[int],
    lives: Sequence[Sequence[Life]],
    slot_count: int,
    alignment: int,
    below: int | None = None,
) -> list[int] | None:
    """The offsets of buffers; None as soon as the heap reaches `below` bytes.

    No size is 0. Lives are in slots of time, both ends included.
    """
    if _place is None or not _is_exact(sizes, alignment):
        return place_in_lists(sizes, lives, slot_count, alignment, below)
    return place_natively(sizes, lives, slot_count, alignment, below)


def place_natively(
    sizes: Sequence[int],
    lives: Sequence[Sequence[Life]],
    slot_count: int,
    alignment: int,
    below: int | None = None,
) -> list[int] | None:
    """The same, by `_heap.c`, for heaps below 2 ** 53 bytes."""
    assert _place is not None
    if below is not None and below <= 0:
        return None if sizes else []
    bound = 0 if below is None else min(below, _EXACT)
    return _place(list(sizes), list(map(tuple, lives)), slot_count, alignment, bound)


def place_in_lists(
    sizes: Sequence[int],
    lives: Sequence[Sequence[Life]],
    slot_count: int,
    alignment: int,
    below: int | None = None,
) -> list[int] | None:
    """The same, in Python, for heaps of any size."""
    beginning: float = 0.0 if _is_exact(sizes, alignment) else 0  # floats sort faster
    tree = IntervalTree(slot_count)
    collect, add = tree.collect, tree.add
    offsets: list[int] = []
    for size, times in zip(sizes, lives, strict=True):
        begins: list[float] = []
        ends: list[float] = [beginning]
        for first, last in times:
            collect(first, last, begins, ends)
        padded = -(-size // alignment) * alignment
        begin = _best_gap(begins, ends, size, padded)
        if below is not None and begin + size >= below:
            return None
        offsets.append(int(begin))
        for first, last in times:
            add(first, last, begin, begin + padded)
    return offsets


def _is_exact(sizes: Sequence[int], alignment: int) -> bool:
    """Whether no number of bytes in a heap reaches `_EXACT`."""
    return sum(sizes) + (len(sizes) + 1) * alignment < _EXACT


def _best_gap(begins: list[float], ends: list[float], size: int, padded: int) -> float:
    """The beginning of the smallest gap of at least `size` bytes, the lowest of equal ones.

    `begins` and `ends` are those of the ranges that are taken, in any order, and an end before all
    of them. Every range ends at a multiple of the alignment, so every gap begins at one, and no gap
    is smaller than `padded`.
    """
    begins.sort()
    ends.sort()
    best = -1.0
    best_gap = float("inf")
    # Behind the n-th end there is a gap exactly if no more than n ranges have begun: until the
    # next one begins. The last gap has no end, and is taken if there is no other.
    for begin, end in zip(begins, ends, strict=False):
        if begin > end:
            gap = begin - end
            if size <= gap < best_gap:
                best_gap, best = gap, end
                if gap == padded:
                    return best
    return best if best >= 0 else ends[-1]
