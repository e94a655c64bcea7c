"""Draws a `Diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import (
    PIPED_WIDTH,
    Line,
    bar,
    percent,
    plain,
    plural,
    shorten_front,
    space_label,
    wrapped,
)
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from hlomem.report.data.diff import Diff, DiffRow, Side

TOP_CAUSES = 5
TOP_ROWS = 10
_BAR = 10
_SMALLEST = 0.001
"""Fraction of the largest cause below which one is not shown."""
_MARGIN = " " * 8


def format_diff(diff: Diff) -> str:
    return plain(draw_diff(diff, PIPED_WIDTH))


def draw_diff(diff: Diff, width: int) -> list[Line]:
    lines = [*_head(diff, width)]
    if not diff.rows:
        return [*lines, [], [("no difference", "bold green")]]
    if not diff.causes:  # other buffers at the peak, but as many bytes
        return [*lines, *_waterfall(diff, width)]
    lines += [[], [("What happened", "bold")]]
    largest = sorted((abs(cause.delta) for cause in diff.causes), reverse=True)[:TOP_CAUSES]
    least = max(largest[-1], _SMALLEST * largest[0])
    causes = [cause for cause in diff.causes if abs(cause.delta) >= least][:TOP_CAUSES]
    for cause in causes:
        lines += wrapped(cause.text, width, f"  {signed(cause.delta):>11}  ")
    if more := len(diff.causes) - len(causes):
        size = diff.delta - sum(cause.delta for cause in causes)
        lines.append([(f"  {signed(size):>11}  in {plural(more, 'other way')}", "dim")])
    return [*lines, *_waterfall(diff, width)]


def signed(size: int) -> str:
    return f"{'+' if size > 0 else ''}{format_bytes(size)}"


def _head(diff: Diff, width: int) -> list[Line]:
    sign = "+" if diff.delta > 0 else ""
    share = f", {sign}{percent(diff.delta, diff.before.size)}" if diff.before.size else ""
    style = "bold red" if diff.delta > 0 else "bold green"
    lines: list[Line] = [
        [(f"{space_label(visible(diff.space))} {signed(diff.delta)}{share}", style)],
        *_side("before", diff.before, width),
        *_side("after", diff.after, width),
    ]
    paired = f"{plural(diff.matched, 'buffer')} matched, {diff.unmatched} without a partner"
    return [*lines, [(paired, "dim")]]


def _side(what: str, side: Side, width: int) -> list[Line]:
    peak = f"peak {format_bytes(side.peak):>10}" if side.peak is not None else ""
    text = f"{what:<{len(_MARGIN)}}needs {format_bytes(side.size):>10}  {peak}  "
    lines: list[Line] = [
        [(text, ""), (shorten_front(visible(side.name), width - len(text)), "dim")]
    ]
    if side.chosen:
        said = f", {side.chosen}; --module chooses another"
        name = shorten_front(visible(side.program), width - len(_MARGIN) - len(said))
        lines.append([(f"{_MARGIN}{name}{said}", "dim")])
    return lines


def _waterfall(diff: Diff, width: int) -> list[Line]:
    lines: list[Line] = [[], [(f"By {diff.by}, from before to after", "bold")]]
    widest = max(abs(row.delta) for row in diff.rows)
    lines.append([(f"  {format_bytes(diff.before.size):>11}  before", "dim")])
    for row in diff.rows[:TOP_ROWS]:
        lines += _row(row, widest, width)
    if rest := diff.rows[TOP_ROWS:]:
        size = sum(row.delta for row in rest)
        lines.append([(f"  {signed(size):>11}  in {plural(len(rest), 'more group')}", "dim")])
    lines.append([(f"  {format_bytes(diff.after.size):>11}  after", "dim")])
    return lines


def _row(row: DiffRow, widest: int, width: int) -> list[Line]:
    head = f"  {signed(row.delta):>11}  "
    room = width - len(head) - _BAR - 2
    style = "red" if row.delta > 0 else "green"
    lines: list[Line] = [
        [
            (head, style),
            (bar(abs(row.delta), widest, _BAR) + "  ", style),
            (shorten_front(visible(row.key), room), "bold"),
        ]
    ]
    if row.largest is not None:
        margin = " " * (len(head) + _BAR + 2)
        kinds = ", ".join(f"{count} {kind}" for kind, count in row.kinds.items())
        shapes = [
            _elements(buffer.shape) for buffer in (row.largest.before, row.largest.after) if buffer
        ]
        lines += wrapped(f"{kinds}: {' → '.join(dict.fromkeys(shapes))}", width, margin, "dim")
    return lines


def _elements(shape: str) -> str:
    """A shape without layout; for a tuple its number of parts."""
    if not shape.startswith("("):
        return shape.partition("{")[0]
    parsed = parse_shape_or_none(shape)
    count = sum(1 for _ in parsed.leaves()) if parsed else 0
    return f"a tuple of {count}" if count else "a tuple"
