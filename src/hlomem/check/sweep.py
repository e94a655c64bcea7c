"""Pairs of values that share bytes while both are alive, found without looking at every pair.

A sweep over time keeps the values that are alive, grouped by the power of two above their size and
sorted by their first byte: those of a group that reach into a byte range begin at most that power
before it. In a plan without overlaps each group yields few candidates.

    time  0 ──a──────── 4
                2 ──b──────── 7        at 2: a is alive; do a and b share bytes?
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.check.plan import Placed


class _Alive:
    """The values alive at a moment, by size and first byte; the numbers make entries unique."""

    def __init__(self) -> None:
        self._groups: dict[int, list[tuple[int, int, Placed]]] = {}
        self._ends: list[tuple[int, int, int, int]] = []
        self._count = 0

    def add(self, placed: Placed, last_moment: int) -> None:
        """`placed` is alive up to and at `last_moment`."""
        self._count += 1
        group = placed.value.size.bit_length()
        insort(self._groups.setdefault(group, []), (placed.start, self._count, placed))
        heappush(self._ends, (last_moment, group, placed.start, self._count))

    def forget_before(self, moment: int) -> None:
        """Drops what is no longer alive at a moment."""
        while self._ends and self._ends[0][0] < moment:
            _, group, start, number = heappop(self._ends)
            entries = self._groups[group]
            del entries[bisect_left(entries, (start, number))]

    def sharing_with(self, placed: Placed) -> Iterator[Placed]:
        """The values that hold a byte of `placed`."""
        for group, entries in self._groups.items():
            low = bisect_left(entries, (placed.start - (1 << group), 0))
            high = bisect_left(entries, (placed.end, 0))
            for _, _, other in entries[low:high]:
                if other.shares_bytes_with(placed):
                    yield other


def iter_sharing(values: Iterable[Placed]) -> Iterator[tuple[Placed, Placed]]:
    """Every pair of one allocation's values that share bytes while both are alive.

    The one that lives first comes first; both ends of a live range belong to it.
    """
    alive = _Alive()
    lives = [(each.life.start, each.life.end, each.id, each) for each in values if each.life]
    for start, end, _, later in sorted(lives, key=lambda each: each[:3]):
        alive.forget_before(start)
        for earlier in alive.sharing_with(later):
            yield earlier, later
        alive.add(later, end)
