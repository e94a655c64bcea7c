"""Draws a `Summary`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data.names import short_program
from hlomem.report.screens.peak_text import (
    draw_moment,
    draw_near_peaks,
    draw_needs,
    draw_outline,
    draw_rest,
    draw_row,
)
from hlomem.report.screens.scoped_text import draw_scoped
from hlomem.report.screens.text import (
    Line,
    bar,
    breakdown,
    percent,
    shorten,
    space_label,
    wrap,
    wrapped,
)

if TYPE_CHECKING:
    from hlomem.machines.capacity import Capacity
    from hlomem.report.data.hints import Hint
    from hlomem.report.data.peak import Snapshot
    from hlomem.report.data.summary import Summary


def draw_summary(summary: Summary, width: int) -> list[Line]:
    space = summary.space
    name, about = short_program(visible(summary.name)), f"  {summary.backend}"
    count = summary.device_count
    devices = f" per device, on each of {count}" if count > 1 else ""
    lines: list[Line] = [
        [(shorten(name, width - len(about)), "bold"), (about, "dim")],
        [],
        [*draw_needs(space.size, space.name), (devices, "")],
    ]
    if summary.capacity is not None:
        lines.append(_capacity(summary.capacity, space.size, width))
    if others := [other for other in summary.spaces if other.color != space.color and other.size]:
        words = ", ".join(
            f"{format_bytes(other.size)} of {space_label(visible(other.name))}" for other in others
        )
        lines += wrapped(f"and {words} (--space)", width, style="dim")
    title = "  by role" + (", at the peak" if summary.fullest_step is not None else "")
    rows = [(share.role, share.size, str(share.count or "")) for share in summary.roles]
    lines += [[], *breakdown(title, "buffers", rows, space.size, width)]
    if summary.peak is not None:
        lines += _peak(summary.peak, width)
    if summary.scoped is not None:
        lines += [[], *draw_scoped(summary.scoped, width)]
    if summary.hints:
        lines += [[], [("Possible savings", "bold"), (", upper bounds", "dim")]]
        lines += [line for hint in summary.hints for line in _hint(hint, width)]
    if summary.notes:
        lines.append([])
        lines += [line for note in summary.notes for line in wrapped(note, width, "! ", "yellow")]
    return lines


def _capacity(capacity: Capacity, size: int, width: int) -> Line:
    left = capacity.size - size
    verdict = f"{format_bytes(left)} left" if left >= 0 else f"over by {format_bytes(-left)}"
    of = f" of {format_bytes(capacity.size)}{f' ({capacity.label})' if capacity.name else ''}, "
    words = f"  {percent(size, capacity.size)}{of}{verdict}"
    columns = max(10, width - len(words))
    style = "green" if left >= 0 else "red"
    full = bar(min(size, capacity.size), capacity.size, columns).replace(" ", "░")
    return [(full, style), (words, style)]


def _peak(peak: Snapshot, width: int) -> list[Line]:
    lines: list[Line] = [
        [],
        draw_moment(peak, width),
        draw_outline(peak),
        *draw_near_peaks(peak.near_peaks, peak.peak_size, width),
    ]
    for row in peak.rows:
        lines += draw_row(row, peak.size, peak.by, width)
    return [*lines, *draw_rest(peak)]


def _hint(hint: Hint, width: int) -> list[Line]:
    head = f"  {format_bytes(hint.size):>10}  "
    words = wrap(f"{hint.what}; see `hlomem {hint.command}`", width, head)
    return [[(words[0][: len(head)], "cyan"), (words[0][len(head) :], "")]] + [
        [(line, "")] for line in words[1:]
    ]
