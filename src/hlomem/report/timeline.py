"""Bytes in use over logical time, replayed from live ranges.

In: the values of a dump with their places and lives. Out: for each memory space one number per
step of the schedule, exactly the bytes that belong to a value alive at that step. Values that
share bytes while both are alive (a loop's versions of its carry, an operand updated in place)
count them once. Step `len(sequence)` is after the last instruction, when the caller has the result.

    time  0 ──a──── 3                  100 bytes at offset 0
              1 ──b──────── 5          100 bytes at offset 0: b is a, updated
                  2 ──c──── 5           50 bytes at offset 100
    use   100 100 150 150 150 150
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.check.plan import Placed
from hlomem.check.sweep import iter_sharing
from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    """What runs at that step; None after the last."""


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


def use_changes(values: Iterable[Placed]) -> list[tuple[int, int]]:
    """By how many bytes the use of one allocation grows or shrinks, and at which steps.

    Every value has a life.
    """
    changes: list[tuple[int, int]] = []
    runs = merge_lives(values)
    for run in runs:
        assert run.life is not None
        changes += [(run.life.start, run.value.size), (run.life.end + 1, -run.value.size)]
    for group in sharing_groups(iter_sharing(runs)):
        for start, stop, excess in _counted_twice(group):
            changes += [(start, -excess), (stop, excess)]
    return changes


def bytes_over_time(changes: Iterable[tuple[int, int]], length: int) -> list[int]:
    """The bytes in use at each of `length` steps, which all changes are within or right after."""
    at_step = [0] * (length + 1)
    for step, size in changes:
        at_step[step] += size
    return list(accumulate(at_step[:-1]))


def occupied(values: Iterable[Placed]) -> int:
    """The bytes of one allocation that belong to at least one of these values."""
    total, reached = 0, 0
    for value in sorted(values, key=lambda each: (each.start, each.end)):
        if value.end > reached:
            total += value.end - max(reached, value.start)
            reached = value.end
    return total


def merge_lives(values: Iterable[Placed]) -> list[Placed]:
    """Values of exactly the same place that follow each other without a break, as one."""
    by_slice: dict[tuple[int, int], list[Placed]] = {}
    for each in values:
        by_slice.setdefault((each.start, each.end), []).append(each)
    runs: list[Placed] = []
    for group in by_slice.values():
        current: Placed | None = None
        for each in sorted(group, key=_start):
            assert each.life is not None
            if current is None or current.life is None or each.life.start > current.life.end:
                current = Placed(each.value, each.allocation, each.life, each.used)
                runs.append(current)
            elif each.life.end > current.life.end:
                current.life = replace(current.life, end=each.life.end)
    return runs


def _start(placed: Placed) -> tuple[int, int]:
    assert placed.life is not None
    return placed.life.start, placed.id


def sharing_groups(pairs: Iterable[tuple[Placed, Placed]]) -> list[list[Placed]]:
    """Values that share bytes with one another, directly or through others."""
    group_of: dict[Placed, list[Placed]] = {}
    for one, two in pairs:
        first = group_of.setdefault(one, [one])
        second = group_of.setdefault(two, [two])
        if first is second:
            continue
        small, large = sorted((first, second), key=len)
        large += small
        group_of.update((each, large) for each in small)
    return list({id(group): group for group in group_of.values()}.values())


def _counted_twice(group: list[Placed]) -> Iterator[tuple[int, int, int]]:
    """How many bytes a plain sum of sizes has too many, from step to step (end excluded)."""
    lives = [(each.life.start, each.life.end, each) for each in group if each.life]
    moments = sorted({start for start, _, _ in lives} | {end + 1 for _, end, _ in lives})
    for start, stop in pairwise(moments):
        alive = [each for first, last, each in lives if first <= start <= last]
        if excess := sum(each.value.size for each in alive) - occupied(alive):
            yield start, stop, excess
