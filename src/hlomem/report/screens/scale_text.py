"""Draws a `ScaleReport`: one line per size, compiled or planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, shorten, wrapped

if TYPE_CHECKING:
    from hlomem.report.data.scaling import ScaleReport

_TITLES = ["size", "needs", "temporaries", ""]
_CAUTION = (
    "planned: hlomem's plan of the same program at another size. A compiler may produce a different"
    " program at that size; only a compile tells"
)


def draw_scale(report: ScaleReport, width: int) -> list[Line]:
    one, other = report.sizes
    title = f"{visible(report.program)}  {report.machine}  compiled at {one} and {other}"
    lines: list[Line] = [[(shorten(title, width), "bold")], []]
    table = [_TITLES, *_rows(report)]
    widths = [max(len(cells[column]) for cells in table) for column in range(3)]
    for number, cells in enumerate(table):
        numbers = "".join(
            f"  {cell:>{columns}}" for cell, columns in zip(cells[:3], widths, strict=True)
        )
        lines.append([(f"{numbers}  {cells[3]}".rstrip(), "" if number else "dim")])
    for note in (*_largest(report), _CAUTION, *report.notes):
        lines += [[], *wrapped(note, width, "  ", "dim")]
    return lines


def _rows(report: ScaleReport) -> list[list[str]]:
    return [
        [
            str(plan.value),
            format_bytes(plan.size),
            format_bytes(plan.temporaries),
            "compiled" if plan.is_given else "planned",
        ]
        for plan in report.plans
    ]


def _largest(report: ScaleReport) -> list[str]:
    if report.capacity is None or report.largest is None:
        return []
    label = f" ({report.capacity.label})" if report.capacity.label else ""
    room = f"{format_bytes(report.capacity.size)}{label}"
    multiple = f" multiple of {report.step}" if report.step > 1 else ""
    if not report.largest:
        return [f"no{multiple or ' size'} that was planned fits {room}"]
    if report.smallest_refused is None:
        return [f"{report.largest} fits {room}, and nothing larger was planned"]
    [refused] = [plan for plan in report.plans if plan.value == report.smallest_refused]
    found = f"the largest{multiple} whose plan fits {room} is {report.largest}"
    missing = format_bytes(refused.size - report.capacity.size)
    return [f"{found}; {refused.value} is over by {missing}"]
