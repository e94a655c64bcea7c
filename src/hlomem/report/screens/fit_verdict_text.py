"""One line for each row of a `FitReport`: whether it fits, and by how much it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.fit_text import words_of

if TYPE_CHECKING:
    from hlomem.report.data.fit import FitReport, FitRow
    from hlomem.report.screens.text import Line


def draw_verdicts(report: FitReport, _width: int) -> list[Line]:
    """Lines for logs, which are not cut to any width."""
    return [
        [(verdict_of(row, report.over), "" if row.is_answered else "red")] for row in report.rows
    ]


def verdict_of(row: FitRow, over: str) -> str:
    """`fits: tpu-v5e:2x2 remat=full needs 14.96 GiB of 15.75 GiB`."""
    own = words_of({key: value for key, value in row.settings.items() if key != "target"})
    where = " ".join(filter(None, (row.target, own)))
    if row.problem:
        return f"unknown: {where}: {visible(row.problem)}"
    best = row.best
    if best is not None:
        most = f" {visible(over)}={best.value}" if over else ""
        open_ = "" if row.is_proven else ", and more may"
        return f"fits: {where}{most} needs {_sizes(best.size, row.capacity)}{open_}"
    least = min(row.plans, key=lambda plan: plan.value)
    most = f" {visible(over)}={least.value}" if over else ""
    missing = format_bytes(max(0, least.size - row.capacity))
    needs = _sizes(least.size, row.capacity)
    return f"does not fit: {where}{most} needs {needs}, {missing} too much"


def _sizes(size: int, capacity: int) -> str:
    return f"{format_bytes(size)} of {format_bytes(capacity)}"
