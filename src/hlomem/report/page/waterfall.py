"""A `Diff` as a waterfall chart from A's reserved bytes to B's; small changes are one bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.diff import Diff, Side

_MAX_BARS = 12
_BREAK = 4
"""The axis is broken if that hides more than this fraction (1/n) of it."""


class Bar(Record, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    label: str
    start: int
    end: int
    is_total: bool = False


class Reason(Record, frozen=True, kw_only=True):
    text: str
    delta: int


class Waterfall(Record, frozen=True, kw_only=True):
    answer: str
    names: tuple[str, str]
    floor: int
    """The bytes at which the axis begins: 0, or slightly below the smallest bar."""
    causes: tuple[Reason, ...]
    """They add up to the difference."""
    steps: tuple[Bar, ...]


def build_waterfall(diff: Diff) -> Waterfall:
    bars = tuple(_bars(diff))
    return Waterfall(
        answer=_answer(diff),
        names=(diff.before.name, diff.after.name),
        causes=tuple(Reason(text=cause.text, delta=cause.delta) for cause in diff.causes),
        floor=_floor(bars),
        steps=bars,
    )


def _floor(bars: tuple[Bar, ...]) -> int:
    """The start of the axis, so that changes are visible."""
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
