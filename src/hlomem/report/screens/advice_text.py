"""Draws advice: one screen of what would save memory."""

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
    shorten,
    shorten_front,
    wrap,
)

if TYPE_CHECKING:
    from hlomem.report.data.advice import Advice, AdviceReport

TOP = 6
_BAR = 10


def format_advice(report: AdviceReport) -> str:
    """The screen as a text."""
    return plain(draw_advice(report, PIPED_WIDTH))


def draw_advice(advised: AdviceReport, width: int) -> list[Line]:
    """The lines of the screen."""
    lines: list[Line] = [
        [(shorten_front(visible(advised.name), width), "bold")],
        [(f"{format_bytes(advised.size)} reserved in {visible(advised.space)}", "")],
    ]
    if not advised.advice:
        lines += [[], [("nothing found that would save more than 1%", "")]]
    for method, head in _HEADS.items():
        chosen = [each for each in advised.advice if each.method == method]
        if chosen:
            lines += [[], [(shorten(head, width), "bold")]]
        for each in chosen[:TOP]:
            lines += _draw(each, advised.size, width)
    if advised.notes:
        lines.append([])
    for note in advised.notes:
        lines += [[(each, "dim")] for each in wrap(note, width, "note ")]
    return lines


_HEADS = {
    "re-planned": "Tried: the program planned again with the change",
    "counted": "Counted: no more than this, perhaps less",
}


def _draw(advice: Advice, size: int, width: int) -> list[Line]:
    saves = f"  {format_bytes(-advice.saves):>11}  {percent(advice.saves, size):>6}  "
    margin = " " * len(saves)
    title = wrap(advice.title, width, margin)
    lines: list[Line] = [[(saves, "green"), (title[0][len(margin) :], "bold")]]
    lines += [[(each, "bold")] for each in title[1:]]
    shown = bar(advice.saves, size, _BAR)
    head = f"  {shown}".ljust(len(margin))
    costs = wrap(f"{advice.confidence} confidence; costs: {advice.cost}", width, margin)
    lines += [[(head, "green"), (costs[0][len(margin) :], "")]]
    lines += [[(each, "")] for each in costs[1:]]
    if advice.how:
        lines.append([(f"      {visible(advice.how)}", "cyan")])
    return lines
