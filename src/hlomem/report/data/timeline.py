"""Bytes in use at each step of the schedule and after it, in total and in layers by role."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from hlomem.dump.records import Record
from hlomem.report.data import roles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.report.data.memory import MemoryView
    from hlomem.report.data.occupancy import Usage


NEAR = 0.9
"""Fraction of the peak from which on a summit is near it."""
_DIP = 0.1
"""Fraction of the curve's range by which it falls between two summits."""


class Summit(Record, frozen=True, kw_only=True):
    """A local maximum of the bytes alive."""

    step: int
    size: int
    instruction: str | None
    """None after the last step."""


class Timeline(Record, frozen=True, kw_only=True):
    color: int
    sizes: tuple[int, ...]
    peak: Summit
    """The first maximum."""
    near_peaks: tuple[Summit, ...]
    """Other summits of at least 90 % of the peak, highest first."""


def build_timeline(color: int, sizes: Sequence[int], sequence: Sequence[str]) -> Timeline:
    """A curve with its summits; `sizes` is one longer than the sequence."""
    steps = find_summits(sizes)
    summits = [
        Summit(step=s, size=sizes[s], instruction=sequence[s] if s < len(sequence) else None)
        for s in steps
    ]
    return Timeline(color=color, sizes=tuple(sizes), peak=summits[0], near_peaks=(*summits[1:],))


def find_summits(sizes: Sequence[int]) -> list[int]:
    """The peak step and the near summits, highest first, separated by dips of `_DIP`."""
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
    changes = [0] * (length + 1)
    for _, start, stop, size in uses:
        changes[start] += size
        changes[stop] -= size
    return list(accumulate(changes[:-1]))


_ORDER = list(roles.MEANING)


class Layer(Record, frozen=True, kw_only=True):
    """One role's bytes over time: the steps at which they change, and by how much."""

    role: str
    steps: tuple[int, ...]
    changes: tuple[int, ...]


def build_skyline(memory: MemoryView, color: int) -> tuple[Layer, ...]:
    """The layers of a memory space, in the order of the roles; empty without live ranges."""
    changes: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for role, start, stop, size in memory.uses(color):
        changes[role][start] += size
        changes[role][stop] -= size
    return tuple(_layer(role, changes[role]) for role in sorted(changes, key=_ORDER.index))


def _layer(role: str, changes: dict[int, int]) -> Layer:
    steps = sorted(step for step, change in changes.items() if change)
    return Layer(role=role, steps=tuple(steps), changes=tuple(changes[step] for step in steps))
