"""Draws `Copies`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, percent, plural, shorten, shorten_front, wrapped

if TYPE_CHECKING:
    from hlomem.report.data.copies import Copies, Copy, CopyGroup

_MAX_LISTED = 10
_MARGIN = 14


def draw_copies(copies: Copies, width: int) -> list[Line]:
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
    if copies.moved_size:
        words = f"{format_bytes(copies.moved_size)} more were moved here and exist only once"
        lines += wrapped(words, width, "  ", "dim")
    for group in copies.groups[:_MAX_LISTED]:
        lines += [[], *_draw_group(group, width)]
    if rest := copies.groups[_MAX_LISTED:]:
        size = format_bytes(max(group.size for group in rest))
        words = f"  and {plural(len(rest), 'line')} more, none above {size} (all in --json)"
        lines += [[], [(words, "dim")]]
    return lines


def _draw_group(group: CopyGroup, width: int) -> list[Line]:
    cells = width - _MARGIN
    margin = " " * _MARGIN
    row = group.example
    of = f" of {visible(row.of)}" if row.of else ""
    more = f" and {group.count - 1} more like it" if group.count > 1 else ""
    lines: list[Line] = [
        [
            (f"  {format_bytes(group.size):>10}  ", "bold" if group.count_at_peak else "dim"),
            (shorten(f"{visible(row.name)}{of}{more}", cells), "bold"),
        ],
        *wrapped(f"{group.cause}: {group.why}", width, margin),
        [(margin + shorten(f"{visible(row.shape)}, {_life(row)}", cells), "cyan")],
    ]
    if origin := row.source or row.op_name:
        lines.append([(margin + shorten_front(visible(origin), cells), "dim")])
    return lines


def _life(row: Copy) -> str:
    life = "" if row.start is None else f"instructions {row.start} to {row.end}"
    return f"{life}{', at the peak' if row.is_at_peak else ''}"
