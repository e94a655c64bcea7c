"""Draws advice: one screen of what would save memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hlomem.report.text import Line, bar, format_bytes, percent, shorten, shorten_front, wrap
from hlomem.source import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

TOP = 6
_BAR = 10


class Advice(Protocol):
    """What is drawn of one piece of advice; `hlomem.advising` has the meaning."""

    @property
    def title(self) -> str: ...
    @property
    def saves(self) -> int: ...
    @property
    def method(self) -> str: ...
    @property
    def confidence(self) -> str: ...
    @property
    def cost(self) -> str: ...
    @property
    def how(self) -> str: ...


class Advised(Protocol):
    """What is drawn of all."""

    @property
    def name(self) -> str: ...
    @property
    def space(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def advice(self) -> Sequence[Advice]: ...
    @property
    def notes(self) -> Sequence[str]: ...


def draw_advice(advised: Advised, width: int) -> list[Line]:
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
