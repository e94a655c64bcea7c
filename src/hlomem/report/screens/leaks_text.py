"""Draws `Leaks`: what grew between device memory profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, plural, shorten_front, wrapped

if TYPE_CHECKING:
    from hlomem.job.leaks import GrownLine, Leaks

TOP_LINES = 12


def draw_leaks(leaks: Leaks, width: int) -> list[Line]:
    """The lines of the screen."""
    lines = wrapped(_head(leaks), width, style="bold")
    if leaks.moved:
        words = f"{format_bytes(leaks.moved)} only moved: arrays of the same sizes, made elsewhere"
        lines += wrapped(words, width, "  ")
    if leaks.shrunk:
        lines += wrapped(f"{format_bytes(leaks.shrunk)} less of other sizes", width, "  ")
    lines.append([])
    if not leaks.grown:
        lines.append([("  no line has more arrays than before", "")])
    for line in leaks.grown[:TOP_LINES]:
        lines += _grown(line, leaks, width)
    if rest := leaks.grown[TOP_LINES:]:
        size = sum(line.size for line in rest)
        lines.append([(f"  {format_bytes(size):>10}  {plural(len(rest), 'more line')}", "dim")])
    if leaks.executables:
        lines += [[], [("Programs that pile up", "bold")]]
    for pile in leaks.executables[:TOP_LINES]:
        head = f"  {pile.before:>4} → {pile.after:<5} "
        where = shorten_front(visible(pile.line), width - len(head))
        lines.append([(head, ""), (where, "cyan")])
    return lines


def _head(leaks: Leaks) -> str:
    first, last = leaks.totals[0], leaks.totals[-1]
    change = last - first
    sign = "+" if change >= 0 else ""
    words = f"{format_bytes(first)} → {format_bytes(last)} in arrays ({sign}{format_bytes(change)})"
    return f"{words} over {plural(len(leaks.names), 'profile')}"


def _grown(line: GrownLine, leaks: Leaks, width: int) -> list[Line]:
    head = f"  {'+' + format_bytes(line.size):>11}  "
    more = f"{plural(line.count, 'array')} of {format_bytes(line.unit)} more"
    steps = len(leaks.names) - 1
    often = ", in every interval: a leak" if line.is_steady else ""
    if not line.is_steady and steps > 1:
        often = f", in {line.intervals} of {steps} intervals"
    where = shorten_front(visible(line.line), width - len(head))
    return [
        [(head, ""), (where, "cyan")],
        *wrapped(f"{more}{often}", width, " " * len(head), "dim"),
    ]
