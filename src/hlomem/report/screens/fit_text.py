"""Draws a `FitReport`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, shorten, wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.report.data.fit import FitReport, FitRow

_EVERYTHING = "all"


def draw_fit(report: FitReport, width: int) -> list[Line]:
    common = words_of(report.settings)
    title = f"{visible(report.factory)}  {report.target}{'  ' if common else ''}{common}"
    size = format_bytes(report.capacity.size)
    label = f" ({report.capacity.label})" if report.capacity.label else ""
    lines: list[Line] = [
        [(shorten(title, width), "bold")],
        [(f"largest {visible(report.over)} in {size}{label}", "")],
        [],
        *_draw_table(table_of(report), width),
    ]
    return [*lines, *_draw_notes(report, width)]


def table_of(report: FitReport) -> list[list[str]]:
    """Titles, then the cells of each row."""
    return [_titles(report), *map(_cells, report.rows)]


def _titles(report: FitReport) -> list[str]:
    over = visible(report.over)
    return ["settings", over, "needs", "next", f"fixed + each {over}", "FLOPs", "plans"]


def _cells(row: FitRow) -> list[str]:
    best = row.best
    refused = next((plan for plan in row.plans if plan.value == row.smallest_refused), None)
    value = str(row.largest) if row.largest else "none"
    return [
        words_of(row.settings) or _EVERYTHING,
        value if row.is_proven else f"≥ {value}",
        format_bytes(best.size) if best else "-",
        f"{refused.value}: {format_bytes(refused.size)}" if refused else "-",
        f"{format_bytes(max(0, row.base))} + {format_bytes(max(0, round(row.per_item)))}",
        f"×{row.work:.3f}" if row.work else "-",
        str(len(row.plans)),
    ]


def words_of(settings: Mapping[str, Any]) -> str:
    """`remat=full donate=True`."""
    return " ".join(visible(f"{name}={value}") for name, value in settings.items())


def _draw_table(table: Sequence[list[str]], width: int) -> list[Line]:
    """Cells below their titles; settings get a line of their own if they are too long."""
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    others = sum(widths[1:]) + 2 * len(widths)
    is_apart = widths[0] + others > width
    lines: list[Line] = []
    for number, cells in enumerate(table):
        style = "dim" if number == 0 else ""
        first = f"  {cells[0]:<{0 if is_apart else widths[0]}}"
        if is_apart:
            lines.append([(shorten(first, width), style or "bold")])
            first = "  "
        right = zip(cells[1:], widths[1:], strict=True)
        rest = "".join(f"  {cell:>{columns}}" for cell, columns in right)
        lines.append([(first, style), (rest, style)])
    return lines


def _draw_notes(report: FitReport, width: int) -> list[Line]:
    spent = sum(plan.cpu_seconds for row in report.rows for plan in row.plans)
    made = [plan for row in report.rows for plan in row.plans]
    known = sum(plan.cpu_seconds == 0 for plan in made)
    again = f", {known} of them cached" if known else ""
    words = [f"{len(made)} plans by XLA{again}; {spent:.1f} s of CPU time in its compilers"]
    if any(row.work for row in report.rows):
        words.append("FLOPs are those of matrix products, with trip counts, relative to the fewest")
    lines: list[Line] = [[]]
    for note in (*words, *report.notes):
        lines += wrapped(note, width, "  ", "dim")
    return lines
