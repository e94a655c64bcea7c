"""Best fit: offsets of buffers that are placed in a given order.

Each goes into the smallest sufficient gap during its whole live range, the lowest of equal ones, or
on top: `FindUnslicedChunkCandidates` of `service/heap_simulator/heap_simulator.cc`. `_heap.c` gives
the same offsets as `place_in_lists`, several times as fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.interval_tree import IntervalTree
from hlomem.base.native import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Life = tuple[int, int]
"""The first and the last time slot."""
_place: Callable[..., list[int] | None] | None = kernel("hlomem.assign._heap", "place")
IS_NATIVE = _place is not None
_EXACT = 1 << 53
"""Below this, floats are exact and native sums do not overflow."""


def place(
    sizes: Sequence[int],
    lives: Sequence[Sequence[Life]],
    slot_count: int,
    alignment: int,
    below: int | None = None,
) -> list[int] | None:
    """Offsets by lives in slots, ends included; None once the heap reaches `below` bytes."""
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
    """`place` by `_heap.c`, for heaps below 2 ** 53 bytes."""
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
    """`place` in Python, for heaps of any size."""
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
    return sum(sizes) + (len(sizes) + 1) * alignment < _EXACT


def _best_gap(begins: list[float], ends: list[float], size: int, padded: int) -> float:
    """The beginning of the smallest gap of at least `size` bytes, the lowest of equal ones.

    `begins` and `ends` are those of the occupied ranges, in any order, and an end before all of
    them. Ranges end at multiples of the alignment, so no gap is smaller than `padded`.
    """
    begins.sort()
    ends.sort()
    best = -1.0
    best_gap = float("inf")
    # After the n-th end there is a gap until the next begin if no more than n ranges have begun.
    # The last gap is unbounded.
    for begin, end in zip(begins, ends, strict=False):
        if begin > end:
            gap = begin - end
            if size <= gap < best_gap:
                best_gap, best = gap, end
                if gap == padded:
                    return best
    return best if best >= 0 else ends[-1]
