"""Pairs of values that share bytes while both are live, found without comparing every pair.

A sweep over time keeps the live values, grouped by the power of two above their size and sorted by
first byte: members of a group that reach into a byte range begin at most that power before it. In a
plan without overlaps each group yields few candidates.

    time  0 ──a──────── 4
                2 ──b──────── 7        at 2: a is live; do a and b share bytes?
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from hlomem.base.native import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hlomem.base.quantities import Offset, Step

T = TypeVar("T")

_find_natively: Callable[..., list[Any] | None] | None = kernel(
    "hlomem.view._sweep", "find_sharing"
)
"""All pairs at once; None if there are too many, or too large numbers."""
_USUAL_PAIRS = 16
"""The pairs per stay that a correct plan does not exceed; more are found one by one."""


class Residency(NamedTuple, Generic[T]):
    """A stay in bytes [start, end) of an allocation, from step `first` to `last`, inclusive."""

    first: Step
    last: Step
    number: int
    """Breaks ties."""
    start: Offset
    end: Offset
    who: T


class _Present(Generic[T]):
    """The stays at a step, by size and first byte; the counts make entries unique."""

    def __init__(self) -> None:
        self._groups: dict[int, list[tuple[Offset, int, Residency[T]]]] = {}
        self._ends: list[tuple[Step, int, Offset, int]] = []
        self._count = 0

    def add(self, stay: Residency[T]) -> None:
        self._count += 1
        group = (stay.end - stay.start).bit_length()
        insort(self._groups.setdefault(group, []), (stay.start, self._count, stay))
        heappush(self._ends, (stay.last, group, stay.start, self._count))

    def forget_before(self, moment: Step) -> None:
        while self._ends and self._ends[0][0] < moment:
            _, group, start, count = heappop(self._ends)
            entries = self._groups[group]
            del entries[bisect_left(entries, (start, count))]
            if not entries:
                del self._groups[group]

    def sharing_with(self, stay: Residency[T]) -> list[Residency[T]]:
        _, _, _, start, end, _ = stay
        found = []
        for group, entries in self._groups.items():
            number = bisect_left(entries, (start - (1 << group),))
            while number < len(entries) and entries[number][0] < end:
                other = entries[number][2]
                if start < other.end:
                    found.append(other)
                number += 1
        return found


def iter_sharing(stays: Iterable[Residency[T]]) -> Iterable[tuple[Residency[T], Residency[T]]]:
    """Every pair that shares bytes of one allocation at some step, the earlier stay first."""
    ordered = sorted(stays, key=itemgetter(0, 1, 2))
    if len(ordered) < 2:
        return ()
    found = None
    if _find_natively is not None:
        found = _find_natively(ordered, _USUAL_PAIRS * len(ordered))
    return iter_sharing_in_order(ordered) if found is None else found


def iter_sharing_in_order(
    ordered: Iterable[Residency[T]],
) -> Iterator[tuple[Residency[T], Residency[T]]]:
    """`iter_sharing` of sorted stays, in Python."""
    alive = _Present[T]()
    for later in ordered:
        alive.forget_before(later.first)
        for earlier in alive.sharing_with(later):
            yield earlier, later
        alive.add(later)
