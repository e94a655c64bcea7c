"""Draws `Copies`: what is copied, why, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, percent, plural, shorten, shorten_front, wrap

if TYPE_CHECKING:
    from hlomem.report.data.copies import Copies, Copy

_MAX_LISTED = 10
_MARGIN = 14


def draw_copies(copies: Copies, width: int) -> list[Line]:
    """The lines of the screen."""
    lines: list[Line] = [[(shorten(visible(copies.name), width), "bold")]]
    if not copies.rows:
        return [*lines, [(f"no copy in {visible(copies.space)} memory", "")]]
    if copies.peak_size is not None:
        share = percent(copies.size_at_peak, copies.peak_size)
        whole = f"{format_bytes(copies.peak_size)} in {visible(copies.space)} memory"
        count = f"{copies.count_at_peak} of {plural(len(copies.rows), 'buffer')}"
        lines += [
            [("Copies ", ""), (format_bytes(copies.size_at_peak), "bold"), (" at the peak", "")],
            [(f"  {share} of {whole}, {count}", "")],
        ]
    for row in copies.rows[:_MAX_LISTED]:
        lines += [[], *_draw_row(row, width)]
    if rest := copies.rows[_MAX_LISTED:]:
        size = format_bytes(max(row.size for row in rest))
        words = f"  and {plural(len(rest), 'buffer')} more, none above {size} (all in --json)"
        lines += [[], [(words, "dim")]]
    return lines


def _draw_row(row: Copy, width: int) -> list[Line]:
    cells = width - _MARGIN
    margin = " " * _MARGIN
    of = f" of {visible(row.of)}" if row.of else ""
    lines: list[Line] = [
        [
            (f"  {format_bytes(row.size):>10}  ", "bold" if row.is_at_peak else "dim"),
            (shorten(f"{visible(row.name)}{of}", cells), "bold"),
        ],
        *([(each, "")] for each in wrap(f"{row.cause}: {row.why}", width, margin)),
        [(margin + shorten(f"{visible(row.shape)}, {_life(row)}", cells), "cyan")],
    ]
    if origin := row.source or row.op_name:
        lines.append([(margin + shorten_front(visible(origin), cells), "dim")])
    return lines


def _life(row: Copy) -> str:
    life = "" if row.start is None else f"steps {row.start} to {row.end}"
    return f"{life}{', at the peak' if row.is_at_peak else ''}"
