"""Draws a `Padding`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, percent, plural, shorten, shorten_front, wrapped

if TYPE_CHECKING:
    from hlomem.report.data.padding import PaddedShape, Padding

_MAX_LISTED = 10
_MARGIN = 14


def draw_padding(padding: Padding, width: int) -> list[Line]:
    lines: list[Line] = [[(shorten(visible(padding.name), width), "bold")]]
    if not padding.rows:
        return [*lines, [(f"no array in {visible(padding.space)} memory is padded", "")]]
    if padding.peak_size is not None:
        share = percent(padding.padding_at_peak, padding.peak_size)
        whole = format_bytes(padding.peak_size)
        size = format_bytes(padding.padding_at_peak)
        lines += [
            [("Padding ", ""), (size, "bold"), (" at the peak", "")],
            [(f"  {share} of {whole} in {visible(padding.space)} memory", "")],
        ]
    for row in padding.rows[:_MAX_LISTED]:
        lines += [[], *_draw_row(row, width)]
    if (rest := len(padding.rows) - _MAX_LISTED) > 0:
        lines += [[], [(f"  and {plural(rest, 'padded shape')} more (all in --json)", "dim")]]
    return lines


def _draw_row(row: PaddedShape, width: int) -> list[Line]:
    cells = width - _MARGIN
    margin = " " * _MARGIN
    name = visible(row.example)
    line = shorten_front(visible(row.source or ""), max(0, cells - len(name) - 2))
    return [
        [
            (
                f"  {format_bytes(row.padding_at_peak or row.padding):>10}  ",
                "bold" if row.count_at_peak else "dim",
            ),
            (shorten(visible(row.shape), cells), "cyan"),
        ],
        *wrapped(_words(row), width, margin),
        [(shorten(f"{margin}{name}  {line}", width), "dim")],
        *(wrapped(row.fix, width, margin, "cyan") if row.fix else []),
    ]


def _words(row: PaddedShape) -> str:
    how = ", ".join(growth.words for growth in row.growths) or "rounded up as a whole"
    share = percent(row.padding, row.size)
    count = f"{row.count_at_peak} of {plural(row.count, 'buffer')} at the peak"
    size_of_one = f", {format_bytes(row.padding)} each" if row.count_at_peak > 1 else ""
    return f"{how}; {share} of {format_bytes(row.size)}; {count}{size_of_one}"
