"""Draws a `Summary`: the one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.peak_text import draw_near_peaks, draw_outline, draw_row
from hlomem.report.screens.text import Line, bar, percent, plural, shorten, wrap

if TYPE_CHECKING:
    from hlomem.machines.capacity import Capacity
    from hlomem.report.data.hints import Hint
    from hlomem.report.data.memory import Space
    from hlomem.report.data.peak import Snapshot
    from hlomem.report.data.role_shares import RoleShare
    from hlomem.report.data.summary import Summary

_BAR = 20
_FIGURES = 32
"""Columns of a role's row beside its name and its bar."""


def draw_summary(summary: Summary, width: int) -> list[Line]:
    """The lines of the screen."""
    space = summary.space
    lines: list[Line] = [
        [(shorten(visible(summary.name), width), "bold")],
        [(shorten(f"{summary.backend}, {visible(summary.era)}", width), "dim")],
        [],
        [
            (format_bytes(space.size), "bold"),
            (f" reserved in {visible(space.name)} memory", ""),
            (f", {plural(space.allocation_count, 'allocation')}", "dim"),
        ],
    ]
    if summary.capacity is not None:
        lines.append(_capacity(summary.capacity, space.size, width))
    if others := [each for each in summary.spaces if each.color != space.color and each.size]:
        words = ", ".join(f"{format_bytes(each.size)} in {visible(each.name)}" for each in others)
        lines += [[(each, "dim")] for each in wrap(f"and {words} (--space)", width)]
    lines += _roles(summary.roles, space, summary.fullest_step, width)
    if summary.peak is not None:
        lines += _peak(summary.peak, width)
    if summary.hints:
        lines += [[], [("To gain at most", "bold")]]
        lines += [line for hint in summary.hints for line in _hint(hint, width)]
    if summary.notes:
        lines.append([])
        lines += [[(each, "yellow")] for note in summary.notes for each in wrap(note, width, "! ")]
    return lines


def _capacity(capacity: Capacity, size: int, width: int) -> Line:
    left = capacity.size - size
    verdict = f"{format_bytes(left)} left" if left >= 0 else f"{format_bytes(-left)} too much"
    of = f" of {format_bytes(capacity.size)}{f' ({capacity.label})' if capacity.name else ''}, "
    words = f"  {percent(size, capacity.size)}{of}{verdict}"
    columns = max(10, width - len(words))
    style = "green" if left >= 0 else "red"
    full = bar(min(size, capacity.size), capacity.size, columns).replace(" ", "░")
    return [(full, style), (words, style)]


def _roles(shares: tuple[RoleShare, ...], space: Space, step: int | None, width: int) -> list[Line]:
    title = "by role" + (
        "" if step is None else f"; temporaries at step {step}, when they need most"
    )
    columns = max((len(share.role) for share in shares), default=0)
    cells = max(1, min(_BAR, width - columns - _FIGURES))
    lines: list[Line] = [[], [(f"  {title}", "bold")]]
    lines += [
        [
            (f"  {share.role:<{columns}}  ", ""),
            (f"{format_bytes(share.size):>10}", "cyan"),
            (f"  {percent(share.size, space.size):>6}  ", ""),
            (bar(share.size, space.size, cells), "green"),
            (f"  {share.count or ''}", "dim"),
        ]
        for share in shares
    ]
    return lines


def _peak(peak: Snapshot, width: int) -> list[Line]:
    where = visible(peak.instruction) if peak.instruction else "the end"
    at = f" alive at step {peak.step} of {peak.steps}, {where}"
    lines: list[Line] = [
        [],
        [("Peak ", ""), (format_bytes(peak.size), "bold"), (shorten(at, width - 16), "")],
        [(shorten(_method(peak), width), "dim")],
        draw_outline(peak),
        *draw_near_peaks(peak.near_peaks, peak.peak_size, width),
    ]
    for row in peak.rows:
        lines += draw_row(row, peak.size, peak.by, width)
    if peak.rest_count:
        share = percent(peak.rest_size, peak.size)
        rest = f"in {plural(peak.rest_count, 'smaller buffer')}"
        lines.append([(f"  {format_bytes(peak.rest_size):>10}  {share:>6}  ", ""), (rest, "dim")])
    return lines


def _method(peak: Snapshot) -> str:
    words = "  replayed from live ranges"
    if peak.printed is not None and peak.printed.reasons:
        printed = peak.printed
        words += f"; XLA says {format_bytes(printed.size)} at step {printed.step} (hlomem peak)"
    return words


def _hint(hint: Hint, width: int) -> list[Line]:
    head = f"  {format_bytes(hint.size):>10}  "
    words = wrap(f"{hint.what} (hlomem {hint.command})", width, head)
    return [[(words[0][: len(head)], "cyan"), (words[0][len(head) :], "")]] + [
        [(each, "")] for each in words[1:]
    ]
