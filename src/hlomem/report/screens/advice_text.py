"""Draws an `AdviceReport`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import (
    PIPED_WIDTH,
    Line,
    bar,
    percent,
    plain,
    plural,
    shorten_front,
    wrap,
    wrapped,
)

if TYPE_CHECKING:
    from hlomem.report.data.advice import Advice, AdviceReport, FittingSet

TOP = 6
_BAR = 10
_MARGIN = 14
_CODE = 6
_DIFF = re.compile(r"^--- ", re.MULTILINE)


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
        lines += [[], *_draw(piece, advised, width)]
    if (rest := len(advised.advice) - TOP) > 0:
        lines += [[], [(f"  and {rest} more (all in --json)", "dim")]]
    if advised.together is not None:
        lines += [[], *_draw_together(advised.together, advised, width)]
    if advised.notes:
        lines.append([])
    for note in advised.notes:
        lines += wrapped(note, width, "note ", "dim")
    return lines


def _draw(advice: Advice, advised: AdviceReport, width: int) -> list[Line]:
    margin = " " * _MARGIN
    title = wrap(advice.title, width, margin)
    shown = bar(max(0, advice.saves), advised.size, _BAR) if advice.method != "possible" else ""
    head = f"  {shown}".ljust(_MARGIN)
    lines: list[Line] = [[(head, "green"), (title[0][_MARGIN:], "bold")]]
    lines += [[(line, "bold")] for line in title[1:]]
    lines += wrapped(_promise(advice, advised), width, margin, "green")
    lines += wrapped(f"costs: {advice.cost}", width, margin)
    return [*lines, *draw_code(advice.how)]


def draw_code(code: str) -> list[Line]:
    """Code as it is to be pasted: lines are not wrapped, a diff is not indented."""
    margin = "" if _DIFF.search(code) else " " * _CODE
    return [[(margin + visible(line), "cyan")] for line in code.splitlines()]


def _promise(advice: Advice, advised: AdviceReport) -> str:
    """The saving, and how it is known."""
    size = advised.size
    promised = ""
    if advice.least is not None and advice.most is not None:
        promised = _range(advice.least, advice.most)
    if advice.got is not None:
        got = f"got {format_bytes(advice.got)} ({percent(advice.got, size)})"
        got += f", compiled for {advised.target}"
        return f"{got}; the plan promised {promised}" if promised else got
    if advice.least is None or advice.most is None:
        return "possible, not tried"
    shares = percent(advice.least, size)
    if advice.most != advice.least:
        shares += f" to {percent(advice.most, size)}"
    return f"saves {promised} ({shares}); {advice.method}, {advice.confidence} confidence"


def _range(least: int, most: int) -> str:
    low, high = format_bytes(least), format_bytes(most)
    return low if least == most else f"{low} to {high}"


def _draw_together(found: FittingSet, advised: AdviceReport, width: int) -> list[Line]:
    """The set that fits, or all that go together."""
    saved = advised.size - found.size
    size = f"{format_bytes(found.size)}, {format_bytes(saved)} less"
    if found.limit is None:
        head = f"all {len(found.titles)} together: {size}"
    else:
        limit = (
            f"{format_bytes(found.limit)}{f' of {found.limit_name}' if found.limit_name else ''}"
        )
        if not found.titles:
            return wrapped(f"fits {limit} as it is", width, "  ", "green")
        head = f"fits {limit}: {size}"
        if not found.fits:
            missing = format_bytes(found.size - found.limit)
            head = f"does not fit {limit}: the smallest found needs {size}; over by {missing}"
    color = "green" if found.fits or found.limit is None else "red"
    lines = wrapped(f"{head} ({plural(found.tried, 'combination')} compiled)", width, "  ", color)
    for title in found.titles:
        lines += wrapped(f"- {title}", width, "    ")
    lines += wrapped(f"costs: {found.cost}", width, "    ")
    return [*lines, *draw_code(found.how)]
