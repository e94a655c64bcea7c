"""Draws a `Snapshot`: who is alive at a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data.lines import bare_op_name
from hlomem.report.screens.text import (
    Line,
    bar,
    curve,
    percent,
    plural,
    shorten,
    shorten_front,
    wrap,
)

if TYPE_CHECKING:
    from hlomem.report.data.peak import Printed, Row, Snapshot
    from hlomem.report.data.timeline import Summit

_BAR = 8
_HEAD = 2 + 10 + 2 + 6 + 2 + _BAR + 2
"""Columns of a row before its words: margin, size, share and bar with a gap after each."""
_MAX_SUMMITS = 3
FROM_THE_FRONT = frozenset({"line", "op", "scope"})
"""Keys whose ends tell most."""


def draw_snapshot(alive: Snapshot, width: int) -> list[Line]:
    """The lines of the screen."""
    where = visible(alive.instruction) if alive.instruction else "after the last instruction"
    of = f" of {format_bytes(alive.space_size)} in {visible(alive.space)} memory"
    lines: list[Line] = [
        [(shorten(visible(alive.name), width), "bold")],
        [
            ("Peak " if alive.size == alive.peak_size else "Alive ", ""),
            (format_bytes(alive.size), "bold"),
            (shorten(of, width - 16), ""),
        ],
        [(shorten(f"  at step {alive.step} of {alive.steps}, {where}", width), "")],
    ]
    method = "replayed from live ranges; bytes that values share count once"
    lines += [[(each, "dim")] for each in wrap(method, width, "  ")]
    for caveat in alive.caveats:
        lines += [[(each, "dim")] for each in wrap(caveat, width, "  ")]
    lines.append(draw_outline(alive))
    lines += draw_near_peaks(alive.near_peaks, alive.peak_size, width)
    lines.append([])
    for row in alive.rows:
        lines += draw_row(row, alive.size, alive.by, width)
    if alive.rest_count:
        share = percent(alive.rest_size, alive.size)
        lines.append(
            [
                (f"  {format_bytes(alive.rest_size):>10}  {share:>6}  ", ""),
                (f"in {plural(alive.rest_count, 'smaller buffer')}", "dim"),
            ]
        )
    if alive.printed is not None and alive.printed.reasons:
        lines += [[], *draw_printed(alive.printed, alive.size, width)]
    return lines


def draw_outline(alive: Snapshot) -> Line:
    """The bytes alive from the first step to the last."""
    return [("  ", ""), (curve(alive.outline, alive.peak_size), "green"), ("  over time", "dim")]


def draw_near_peaks(summits: tuple[Summit, ...], peak_size: int, width: int) -> list[Line]:
    """The other summits, each with what removing the peak would bring at most."""
    lines: list[Line] = []
    for summit in summits[:_MAX_SUMMITS]:
        size = f"  {format_bytes(summit.size):>10}  {percent(summit.size, peak_size):>6}  "
        where = visible(summit.instruction or "the end")
        at = f"also at step {summit.step}, "
        lines.append([(size + at + shorten(where, width - len(size) - len(at)), "yellow")])
    if len(summits) > _MAX_SUMMITS:
        rest = f"and {plural(len(summits) - _MAX_SUMMITS, 'more summit')} of 90 % or more"
        lines.append([(" " * 22 + rest, "yellow")])
    return lines


def draw_row(row: Row, whole: int, by: str, width: int) -> list[Line]:
    """A group of buffers: bytes, share, and what they are."""
    head = f"  {format_bytes(row.size):>10}  {percent(row.size, whole):>6}  "
    cells = width - _HEAD
    first: Line = [(head, ""), (bar(row.size, whole, _BAR) + "  ", "green")]
    below = " " * _HEAD
    if by == "buffer":
        name, shape = visible(row.largest), visible(row.shape)
        if len(name) + 2 + len(shape) > cells and shape[:1] != "(":
            shape = shape.partition("{")[0]  # rather no layout than a cut shape
        named = shorten(name, max(cells // 2, cells - 2 - len(shape)))
        first += [(named, "bold"), ("  " + shorten(shape, cells - 2 - len(named)), "cyan")]
        return [first, [(below + _origin(row, cells), "dim")]]
    cut = shorten_front if by in FROM_THE_FRONT else shorten
    first.append((cut(visible(row.key), cells), "bold"))
    if by == "role":
        return [first]
    more = f" and {row.count - 1} more" if row.count > 1 else ""
    words = shorten(visible(row.largest), cells - len(more)) + more
    for text in (row.role, visible(row.shape)):
        if len(words) + len(text) + 2 <= cells:
            words += f"  {text}"
    return [first, [(below + words, "dim")]]


def draw_printed(printed: Printed, size: int, width: int) -> list[Line]:
    """From the number XLA prints to this one, step by step."""
    lines: list[Line] = [
        [
            (f"  {format_bytes(printed.size):>10}  ", "bold"),
            (shorten(f"XLA's own list at the peak, step {printed.step}", width - 14), ""),
        ]
    ]
    for reason in printed.reasons:
        sign = "+" if reason.size > 0 else "-"
        words = wrap(reason.why, width, f"  {sign + format_bytes(abs(reason.size)):>10}  ")
        lines += [[(each, "dim")] for each in words]
    return [*lines, [(f"  {format_bytes(size):>10}  ", "bold"), ("the peak above", "")]]


def _origin(row: Row, columns: int) -> str:
    """A buffer's role, line of code and operation."""
    words = row.role
    for text in (row.source, bare_op_name(row.op_name or "")):
        room = columns - len(words) - 2
        if text and room > 8:
            words += "  " + shorten_front(visible(text), room)
    return words
