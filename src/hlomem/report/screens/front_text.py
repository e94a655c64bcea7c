"""Draws memory against operations: a table, the verdict on a number, and code to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes, format_change
from hlomem.base.source import visible
from hlomem.report.data.code_advice import describe_fit
from hlomem.report.screens.text import Line, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.report.data.front import CodeAdvice, FrontPoint

_MARGIN = 40
"""Columns before the name of a program."""


def draw_front(
    points: Sequence[FrontPoint], limit: int | None, advice: Sequence[CodeAdvice], width: int
) -> list[Line]:
    """The lines of the section."""
    given = next(point for point in points if point.kind == "given")
    lines: list[Line] = [[("Memory against operations", "bold")], [(_head(limit), "dim")]]
    shown = [point for point in points if point.on_front or point.kind != "recomputed"]
    for point in shown:
        style = "green" if point.is_chosen else ""
        row = wrap(visible(point.name), width, _numbers(point, given, limit), " " * _MARGIN)
        lines += [[(line, style)] for line in row]
    if rest := len(points) - len(shown):
        lines.append([(f"  and {rest} more that are larger and dearer (--json has all)", "dim")])
    lines.append([("* no other is as cheap and as small; time is modelled", "dim")])
    if limit is not None:
        lines += [[(line, "")] for line in wrap(describe_fit(points, limit), width, "fit     ")]
    for one in advice:
        lines += [[], *[[(line, "")] for line in wrap(visible(one.text), width)]]
        lines += [[(f"    {visible(line)}", "cyan")] for line in one.code.splitlines()]
    return lines


def _head(limit: int | None) -> str:
    second = "share" if limit is None else "in all"
    return f"  {'temporaries':>11} {second:>10} {'FLOPs':>7} {'time':>6}  program"


def _numbers(point: FrontPoint, given: FrontPoint, limit: int | None) -> str:
    share = f"{point.temporaries / max(given.temporaries, 1):.3f}"
    second = share if limit is None else format_bytes(point.total)
    more = format_change(point.flops, point.program_flops)
    longer = format_change(point.time, point.program_time)
    mark = "*" if point.on_front else " "
    size = format_bytes(point.temporaries)
    return f"{mark} {size:>11} {second:>10} {more:>7} {longer:>6}  "
