"""From what A reserves to what B reserves, step by step: the comparison page's drawing of a diff.

In: a `Diff`. Out: what was changed, with its bytes, and bars, each beginning where the one before
it ends; the small changes are one bar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.diff import Diff, Side

_MAX_BARS = 12
_BREAK = 4
"""The axis is broken where that leaves out more than one part in so many."""


class Bar(Record, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """One change, or a total."""

    label: str
    start: int
    end: int
    is_total: bool = False


class Reason(Record, frozen=True, kw_only=True):
    """A cause of the difference."""

    text: str
    delta: int


class Waterfall(Record, frozen=True, kw_only=True):
    """The way from one compile to the other."""

    answer: str
    """The difference in one sentence."""
    names: tuple[str, str]
    """The names of the compiles."""
    floor: int
    """The bytes at which the bars begin: 0, or little less than the least of them."""
    causes: tuple[Reason, ...]
    """All of it, in the order of the diff; they add up to the difference."""
    steps: tuple[Bar, ...]


def build_waterfall(diff: Diff) -> Waterfall:
    """The bars of a diff, the largest change first."""
    causes = tuple([Reason(text=cause.text, delta=cause.delta) for cause in diff.causes])
    bars = tuple(_bars(diff))
    return Waterfall(
        answer=_answer(diff),
        names=(diff.before.name, diff.after.name),
        causes=causes,
        floor=_floor(bars),
        steps=bars,
    )


def _floor(bars: tuple[Bar, ...]) -> int:
    """The level at which the bars begin, so that changes take up most of their lanes."""
    levels = [level for bar in bars for level in (bar.start, bar.end) if level or not bar.is_total]
    if not levels:
        return 0
    least, most = min(levels), max(levels)
    floor = least - (most - least) // 4
    return floor if floor > most // _BREAK else 0


def _bars(diff: Diff) -> Iterator[Bar]:
    at = diff.before.size
    yield Bar(label=f"A: {_name(diff.before)}", start=0, end=at, is_total=True)
    changed = sorted((row for row in diff.rows if row.delta), key=lambda row: -abs(row.delta))
    for row in changed[:_MAX_BARS]:
        yield Bar(label=row.key, start=at, end=at + row.delta)
        at += row.delta
    if rest := sum(row.delta for row in changed[_MAX_BARS:]):
        yield Bar(label=f"{len(changed) - _MAX_BARS} more", start=at, end=at + rest)
    yield Bar(label=f"B: {_name(diff.after)}", start=0, end=diff.after.size, is_total=True)


def _name(side: Side) -> str:
    return f"{side.name} ({side.program})" if side.chosen else side.name


def _answer(diff: Diff) -> str:
    sizes = f"{format_bytes(diff.before.size)} → {format_bytes(diff.after.size)}"
    if not diff.delta:
        return f"As much in both: {format_bytes(diff.before.size)}."
    word = "more" if diff.delta > 0 else "less"
    causes = "; ".join(cause.text for cause in diff.causes[:1])
    return f"{format_bytes(abs(diff.delta))} {word} ({sizes})" + (f": {causes}." if causes else ".")
