"""Draws an `AdviceReport`."""

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
    shorten_front,
    wrap,
    wrapped,
)

if TYPE_CHECKING:
    from hlomem.report.data.advice import Advice, AdviceReport

TOP = 6
_BAR = 10
_MARGIN = 14
_CODE = 6


def format_advice(report: AdviceReport) -> str:
    return plain(draw_advice(report, PIPED_WIDTH))


def draw_advice(advised: AdviceReport, width: int) -> list[Line]:
    lines: list[Line] = [
        [(shorten_front(visible(advised.name), width), "bold")],
        [(f"{format_bytes(advised.size)} reserved in {visible(advised.space)}", "")],
    ]
    if not advised.advice:
        lines += [[], [("nothing found that would save more than 1%", "")]]
    for piece in advised.advice[:TOP]:
        lines += [[], *_draw(piece, advised.size, width)]
    if (rest := len(advised.advice) - TOP) > 0:
        lines += [[], [(f"  and {rest} more (all in --json)", "dim")]]
    if advised.notes:
        lines.append([])
    for note in advised.notes:
        lines += wrapped(note, width, "note ", "dim")
    return lines


def _draw(advice: Advice, size: int, width: int) -> list[Line]:
    margin = " " * _MARGIN
    title = wrap(advice.title, width, margin)
    shown = bar(advice.middle, size, _BAR)
    head = f"  {shown}".ljust(_MARGIN)
    lines: list[Line] = [[(head, "green"), (title[0][_MARGIN:], "bold")]]
    lines += [[(line, "bold")] for line in title[1:]]
    lines += wrapped(_promise(advice, size), width, margin, "green")
    lines += wrapped(f"costs: {advice.cost}", width, margin)
    for code in advice.how.splitlines():
        indent = " " * (_CODE + len(code) - len(code.lstrip()))
        lines += wrapped(code.strip(), width, indent, "cyan")
    return lines


def _promise(advice: Advice, size: int) -> str:
    if advice.least == advice.most:
        saves = f"{format_bytes(advice.least)} ({percent(advice.least, size)})"
    else:
        shares = f"{percent(advice.least, size)} to {percent(advice.most, size)}"
        saves = f"{format_bytes(advice.least)} to {format_bytes(advice.most)} ({shares})"
    return f"saves {saves}; {advice.method}, {advice.confidence} confidence"
