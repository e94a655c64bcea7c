"""Growth between device memory profiles: what a loop keeps that it should not.

In: two or more device memory profiles (`hlomem.proto.pprof`), the earliest first, taken at the same
point of a loop. Out: `Leaks`. A step that donates its arguments moves all state from the line that
made it to the line of the step, so lines are netted by the size of their arrays: an array less here
and one more of the same size there has moved, and only what is left over has grown.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from hlomem.dump.records import Record
from hlomem.job.array_lines import EXECUTABLE, line_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.proto.pprof import Holding


class GrownLine(Record, frozen=True, kw_only=True):
    """Arrays of one line that became more."""

    line: str
    size: int
    """Bytes they grew by from the first profile to the last."""
    count: int
    """Arrays they grew by."""
    unit: int
    """Bytes of one of them."""
    intervals: int
    """In how many of the intervals between profiles they grew."""
    is_steady: bool
    """Whether they grew in every interval, of which there are at least two."""


class PiledExecutables(Record, frozen=True, kw_only=True):
    """Programs that one line loaded more of."""

    line: str
    before: int
    after: int


class Leaks(Record, frozen=True, kw_only=True):
    """The difference between memory profiles."""

    names: tuple[str, ...]
    """The profiles, the earliest first."""
    totals: tuple[int, ...]
    """Bytes of all arrays in each."""
    moved: int
    """Bytes that lines lost while others gained arrays of the same size."""
    grown: tuple[GrownLine, ...]
    """The largest first; with `shrunk` they add up to the change of the totals."""
    shrunk: int
    """Bytes of sizes of which there are fewer arrays than before."""
    executables: tuple[PiledExecutables, ...]


class _Kind(NamedTuple):
    """Arrays of one line and one size."""

    line: str
    unit: int


def find_leaks(profiles: Sequence[tuple[str, Sequence[Holding]]]) -> Leaks:
    """The growth from the first of several profiles to the last."""
    counts = [_count(holdings) for _, holdings in profiles]
    sizes = [_by_size(one) for one in counts]
    first, last = counts[0], counts[-1]
    more, less = last - first, first - last
    lost = _by_size(less)
    grown = []
    # Lines that are new have taken over from those that are gone.
    for kind in sorted(more, key=lambda kind: (first[kind] > 0, more[kind], kind)):
        taken = min(lost[kind.unit], more[kind])
        lost[kind.unit] -= taken
        if count := more[kind] - taken:
            steps = [after[kind.unit] - before[kind.unit] for before, after in pairwise(sizes)]
            grown.append(_grown_line(kind, count, steps))
    grown.sort(key=lambda line: (-line.size, line.line, line.unit))
    return Leaks(
        names=tuple(name for name, _ in profiles),
        totals=tuple(sum(kind.unit * count for kind, count in one.items()) for one in counts),
        moved=sum(unit * count for unit, count in (_by_size(more) & _by_size(less)).items()),
        grown=tuple(grown),
        shrunk=sum(unit * count for unit, count in (sizes[0] - sizes[-1]).items()),
        executables=tuple(_piled(profiles[0][1], profiles[-1][1])),
    )


def _count(holdings: Sequence[Holding]) -> Counter[_Kind]:
    """How many arrays each line has of each size; odd ones count as one array a group."""
    found: Counter[_Kind] = Counter()
    for holding in holdings:
        if holding.kind == EXECUTABLE or holding.count <= 0:
            continue
        unit, rest = divmod(holding.size, holding.count)
        kind = _Kind(line_of(holding.stack), holding.size if rest else unit)
        found[kind] += 1 if rest else holding.count
    return found


def _by_size(counts: Counter[_Kind]) -> Counter[int]:
    found: Counter[int] = Counter()
    for kind, count in counts.items():
        found[kind.unit] += count
    return found


def _grown_line(kind: _Kind, count: int, steps: Sequence[int]) -> GrownLine:
    growing = sum(step > 0 for step in steps)
    return GrownLine(
        line=kind.line,
        size=count * kind.unit,
        count=count,
        unit=kind.unit,
        intervals=growing,
        is_steady=len(steps) > 1 and growing == len(steps),
    )


def _piled(first: Sequence[Holding], last: Sequence[Holding]) -> list[PiledExecutables]:
    before, after = _programs(first), _programs(last)
    piled = [
        PiledExecutables(line=line, before=before[line], after=after[line])
        for line in after - before
    ]
    return sorted(piled, key=lambda pile: (pile.before - pile.after, pile.line))


def _programs(holdings: Sequence[Holding]) -> Counter[str]:
    found: Counter[str] = Counter()
    for holding in holdings:
        if holding.kind == EXECUTABLE:
            found[line_of(holding.stack)] += holding.count
    return found
