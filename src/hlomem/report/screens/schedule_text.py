"""A few lines of a schedule, with a bar beside the steps at which values are alive.

┌     4  negate.1
│     5  add.2
│┌    6  multiply.3
└│    7  dot.4
⋮
 └   12  tuple.9
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hlomem.base.source import visible
from hlomem.report.screens.text import Line, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence


MAX_STEPS = 12
_AROUND = 2
"""Steps shown before and after one at which a value begins or ends."""
_END = "(end of the program)"


def draw_schedule(
    sequence: Sequence[str], lives: Sequence[tuple[int, int]], columns: int, indent: str = "  "
) -> list[Line]:
    """The steps around the beginning and the end of each life; first and last step included."""
    steps = _steps_around(lives, len(sequence))
    lines: list[Line] = []
    for previous, step in pairwise([steps[0] - 1, *steps] if steps else []):
        if step != previous + 1:
            lines.append([(f"{indent}⋮", "dim")])
        marks = "".join(_mark(step, life) for life in lives)
        name = visible(sequence[step]) if step < len(sequence) else _END
        text = f"{indent}{marks}  {step:>5}  {name}"
        lines.append([(shorten(text, columns), "" if marks.strip() else "dim")])
    return lines


def _steps_around(lives: Sequence[tuple[int, int]], end: int) -> list[int]:
    """As many steps around each event as there is room for, the events themselves always."""
    events = sorted({step for life in lives for step in life if 0 <= step <= end})[:MAX_STEPS]
    shown = set(events)
    for distance in range(1, _AROUND + 1):
        near = {step + sign * distance for step in events for sign in (-1, 1)}
        wider = shown | {step for step in near if 0 <= step < end}
        if len(wider) > MAX_STEPS:
            break
        shown = wider
    return sorted(shown)


def _mark(step: int, life: tuple[int, int]) -> str:
    start, end = life
    if not start <= step <= end:
        return " "
    if start == end:
        return "─"
    return "┌" if step == start else "└" if step == end else "│"
