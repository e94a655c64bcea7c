"""Draws an `Overview`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data.lines import bare_op_name
from hlomem.report.data.names import short_program
from hlomem.report.screens.text import (
    Line,
    bar,
    breakdown,
    percent,
    plural,
    shorten,
    shorten_front,
    space_label,
    wrapped,
)

if TYPE_CHECKING:
    from hlomem.report.data.overview import LiveBuffer, Overview, PeakOverview, Share

_OWN_LIST = "of all memory spaces: no padding, shared bytes each time; not what must fit"


def draw_overview(overview: Overview, width: int) -> list[Line]:
    name = shorten(short_program(visible(overview.name)), width)
    lines: list[Line] = [[(name, "bold")], [(visible(overview.era), "dim")]]
    if overview.needs is not None:
        count = overview.allocation_count
        where = f" of {space_label(visible(overview.space))}" if overview.space else ""
        where += "" if count is None else f" in {plural(count, 'allocation')}"
        lines += [[], [("Needs ", ""), (format_bytes(overview.needs), "bold"), (where, "")]]
    elif overview.total is not None:
        where = " in all memory spaces, stacks of threads included"
        lines += [[], [("Total ", ""), (format_bytes(overview.total), "bold"), (where, "")]]
    if len(overview.spaces) > 1:
        lines += _spaces(overview.spaces)
    if overview.kinds:
        rows = [(visible(share.name), share.size, str(share.count)) for share in overview.kinds]
        lines += [[], *breakdown("  by kind", "allocations", rows, overview.needs or 0, width)]
    if overview.peak is not None:
        lines += _peak(overview.peak, width)
    if overview.notes:
        lines.append([])
        lines += [[("note ", "yellow"), (visible(note), "")] for note in overview.notes]
    return lines


def _spaces(spaces: tuple[Share, ...]) -> list[Line]:
    columns = max(len(visible(share.name)) for share in spaces)
    rows: list[Line] = [
        [
            (f"  {visible(share.name):<{columns}}  ", ""),
            (f"{format_bytes(share.size):>10}", "cyan"),
            (f"  {plural(share.count, 'allocation')}", "dim"),
        ]
        for share in spaces
    ]
    return [[], [("  by memory space", "bold")], *rows]


def _peak(peak: PeakOverview, width: int) -> list[Line]:
    at = f", {visible(peak.instruction)}" if peak.instruction else ""
    lines: list[Line] = [
        [],
        [
            ("XLA's own list ", ""),
            (format_bytes(peak.size), "bold"),
            (shorten(f" at instruction {peak.moment} of {peak.steps}{at}", width - 25), ""),
        ],
        *wrapped(_OWN_LIST, width, "  ", "dim"),
    ]
    for buffer in peak.buffers:
        lines += _buffer(buffer, peak.size, width)
    if (rest := peak.buffer_count - len(peak.buffers)) > 0:
        left = peak.size - sum(buffer.size for buffer in peak.buffers)
        others = f"in {plural(rest, 'smaller buffer')}"
        lines.append(
            [(f"  {format_bytes(left):>10}  {percent(left, peak.size):>6}  ", ""), (others, "dim")]
        )
    return lines


def _buffer(buffer: LiveBuffer, whole: int, width: int) -> list[Line]:
    head = f"  {format_bytes(buffer.size):>10}  {percent(buffer.size, whole):>6}  "
    cells = width - len(head) - 12
    name = visible(buffer.name)
    shape = visible(buffer.shape or "")
    name_columns = max(cells // 2, cells - 2 - len(shape))
    named = shorten(name, name_columns)
    lines: list[Line] = [
        [
            (head, ""),
            (bar(buffer.size, whole, 10) + "  ", "green"),
            (named, "bold"),
            ("  " + shorten(shape, cells - 2 - len(named)) if shape else "", "cyan"),
        ]
    ]
    if where := _origin(buffer, cells):
        lines.append([(" " * (len(head) + 12) + where, "dim")])
    return lines


def _origin(buffer: LiveBuffer, columns: int) -> str:
    line = shorten_front(visible(buffer.source or ""), columns)
    room = columns - len(line) - (2 if line else 0)
    operation = bare_op_name(visible(buffer.op_name or ""))
    return "  ".join(filter(None, (line, shorten_front(operation, room) if room > 8 else "")))
