"""A `FitReport` as CSV: a line for each row, with a column for each role."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.fit import FitReport, FitRow

_HEAD = ("target", "chips")
_TAIL = (
    *("needs", "capacity", "fits", "is_proven", "next", "next_needs", "host", "device_flops"),
    *("sent", "seconds", "price", "is_cheapest", "plans", "problem", "command"),
)


def format_fit_csv(report: FitReport) -> str:
    """Sizes in bytes, `needs` that of the largest value that fits, or of the only plan."""
    rows = [_Told(row, report) for row in report.rows]
    settings = list(dict.fromkeys(name for row in report.rows for name in row.settings))
    roles = list(dict.fromkeys(role for row in rows for role in row.roles))
    over = [report.over] if report.over else []
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    titles = [*_HEAD, *(name for name in settings if name not in _HEAD), *over, *_TAIL]
    writer.writerow([*titles, *(f"needs: {role}" for role in roles)])
    for row in rows:
        values = dict(row.columns())
        cells = [values.get(title, "") for title in titles]
        writer.writerow([*cells, *(row.roles.get(role, "") for role in roles)])
    return out.getvalue()


class _Told:
    """One row, as far as its columns go."""

    def __init__(self, row: FitRow, report: FitReport) -> None:
        self._row = row
        self._over = report.over
        self._plan = row.best or (row.plans[0] if row.plans and not report.over else None)
        self.roles: dict[str, int] = {} if self._plan is None else self._plan.roles

    def columns(self) -> Iterator[tuple[str, Any]]:
        row, plan = self._row, self._plan
        refused = next((p for p in row.plans if p.value == row.smallest_refused), None)
        yield from row.settings.items()
        yield "target", row.target
        yield "chips", row.chips or ""
        if self._over:
            yield self._over, row.largest
        yield "capacity", row.capacity or ""
        yield "fits", row.best is not None
        for name in ("is_proven", "is_cheapest", "problem", "command"):
            yield name, getattr(row, name)
        yield "price", "" if row.price is None else row.price
        yield "plans", len(row.plans)
        yield "next", refused.value if refused and self._over else ""
        yield "next_needs", refused.size if refused and self._over else ""
        if plan is None:
            return
        yield "needs", plan.size
        for name in ("host", "device_flops", "sent", "seconds"):
            value = getattr(plan, name)
            yield name, "" if value is None else value
