"""Bytes in use over logical time, replayed from live ranges.

In: which bytes are in use from when to when. Out: for each memory space one number per step of the
schedule, and where it is highest. Step `len(sequence)` is after the last instruction, when the
caller has the result.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.report.data.uses import Usage

NEAR = 0.9
"""A summit is near the peak from this share of it on."""
_DIP = 0.1
"""Between two summits the curve falls by at least this share of its whole swing."""


class Summit(Record, frozen=True, kw_only=True):
    """A step at which more is alive than around it."""

    step: int
    size: int
    """Bytes alive."""
    instruction: str | None
    """The instruction that runs at that step; None after the last."""


class Timeline(Record, frozen=True, kw_only=True):
    """One memory space over logical time."""

    color: int
    sizes: tuple[int, ...]
    """Bytes alive at each step."""
    peak: Summit
    """The first of the highest steps."""
    near_peaks: tuple[Summit, ...]
    """Other summits of at least 90 % of the peak, highest first."""


def build_timeline(color: int, sizes: Sequence[int], sequence: Sequence[str]) -> Timeline:
    """A curve with its summits; `sizes` has one number more than the sequence has steps."""
    steps = find_summits(sizes)
    summits = [
        Summit(step=s, size=sizes[s], instruction=sequence[s] if s < len(sequence) else None)
        for s in steps
    ]
    return Timeline(color=color, sizes=tuple(sizes), peak=summits[0], near_peaks=(*summits[1:],))


def find_summits(sizes: Sequence[int]) -> list[int]:
    """The highest step, then the other summits near it, highest first.

    Two summits are apart when the curve dips between them by a tenth of its swing.
    """
    highest = max(sizes)
    dip = max(1, round((highest - min(sizes)) * _DIP))
    summits: list[int] = []
    best: int | None = None
    lowest = 0
    for step, size in enumerate(sizes):
        if best is None:
            # Downhill: a rise from the valley starts a new summit.
            lowest = min(lowest, size)
            if step == 0 or size >= lowest + dip:
                best = step
        elif size > sizes[best]:
            best = step
        elif size <= sizes[best] - dip:
            summits.append(best)
            best, lowest = None, size
    if best is not None:
        summits.append(best)
    near = [step for step in summits if sizes[step] >= NEAR * highest]
    return sorted(near, key=lambda step: (-sizes[step], step))


def outline(sizes: Sequence[int], stretches: int) -> tuple[int, ...]:
    """The most alive in each of at most so many stretches of equal length."""
    count = min(stretches, len(sizes))
    bounds = [len(sizes) * number // count for number in range(count + 1)]
    return tuple(max(sizes[low:high]) for low, high in pairwise(bounds))


def fullest_step_of(uses: Iterable[Usage]) -> int:
    """The first step at which most bytes are in use; takes no time for steps without a change."""
    changes: dict[int, int] = {0: 0}
    for _, start, stop, size in uses:
        changes[start] = changes.get(start, 0) + size
        changes[stop] = changes.get(stop, 0) - size
    steps = sorted(changes)
    sizes = list(accumulate(changes[step] for step in steps))
    return steps[sizes.index(max(sizes))]


def bytes_over_time(uses: Iterable[Usage], length: int) -> list[int]:
    """The bytes in use at each of `length` steps, which all uses are within."""
    changes = [0] * (length + 1)
    for _, start, stop, size in uses:
        changes[start] += size
        changes[stop] -= size
    return list(accumulate(changes[:-1]))
