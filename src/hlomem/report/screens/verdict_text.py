"""Draws a `Verdict`: each finding with its values and an excerpt of the schedule.

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
from hlomem.report.screens.text import Line, shorten, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.check.findings import Finding, ValueEvidence, Verdict


MAX_SHOWN = 5
_CONTEXTS = 3
"""Findings shown with an excerpt of the schedule."""
_SIDES = 2
"""Values of a finding whose lives are drawn."""


def draw_verdict(verdict: Verdict, columns: int, sequence: Sequence[str] = ()) -> list[Line]:
    count = len(verdict.findings)
    head = "no finding" if not count else f"{count} finding" + "s" * (count > 1)
    lines: list[Line] = [
        [(shorten(visible(verdict.name), columns), "bold")],
        [
            (head, "bold red" if count else "bold green"),
            (f"  {verdict.value_count} values in {verdict.allocation_count} allocations", ""),
            (f", {verdict.pair_count} byte-sharing pairs proved safe", "dim"),
        ],
    ]
    for number, finding in enumerate(verdict.findings[:MAX_SHOWN]):
        shown = sequence if number < _CONTEXTS else ()
        lines += [[], *_draw_finding(finding, columns, shown)]
    if count > MAX_SHOWN:
        lines += [[], *_draw_counts(verdict, columns)]
    notes = [f"assumed: {assumption}" for assumption in verdict.assumed]
    notes += [f"not checked: {gap.rules} ({gap.reason})" for gap in verdict.not_checked[:5]]
    if notes:
        lines.append([])
    lines += [line for note in notes for line in wrapped(note, columns, style="dim")]
    return lines


def _draw_finding(finding: Finding, columns: int, sequence: Sequence[str]) -> list[Line]:
    style = "red" if finding.severity == "error" else "yellow"
    lines: list[Line] = [[(shorten(f"{finding.severity}: {finding.rule}", columns), style)]]
    lines += wrapped(finding.message, columns, "  ")
    for value in finding.values:
        lines += wrapped(_describe(value), columns, "  ", "cyan")
    for fact in finding.evidence:
        lines += wrapped(fact, columns, "  - ", "dim")
    lives = [
        (value.live_from, value.live_to)
        for value in finding.values[:_SIDES]
        if value.live_from is not None and value.live_to is not None
    ]
    return lines + (draw_schedule(sequence, lives, columns) if sequence and lives else [])


def _describe(value: ValueEvidence) -> str:
    return f"{value}, from {value.source}" if value.source else str(value)


def _draw_counts(verdict: Verdict, columns: int) -> list[Line]:
    lines: list[Line] = [[("all findings, by rule", "bold")]]
    for rule, count in verdict.counts().items():
        lines.append([(f"{count:>7}  ", "cyan"), (shorten(rule, columns - 9), "")])
    return lines


MAX_STEPS = 12
_AROUND = 2
"""Steps shown before and after the ends of a live range."""
_END = "(end of the program)"


def draw_schedule(
    sequence: Sequence[str], lives: Sequence[tuple[int, int]], columns: int, indent: str = "  "
) -> list[Line]:
    """The steps around both ends of each inclusive live range."""
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
    """All ends of live ranges, and as many steps around them as there is room for."""
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
