"""Sums agree with what they sum: total bytes and usage reports.

A usage report rounds its sizes ("1.5KiB"). Where the exact ones are known, a sum is held against
it in the same rounded form; inside a table it must lie within what rounding allows.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from hlomem.check.findings import Finding
from hlomem.dump.numbers import human_bytes
from hlomem.dump.records import AllocationReport, SpaceReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.base.quantities import AllocationIndex
    from hlomem.dump.records import UsageTable
    from hlomem.view.joined import JoinedDump

_ROUNDED = re.compile(r"(-?\d+(?:\.(\d+))?)([KMGTPE]iB|B)")
_POWERS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5, "EiB": 6}


def check_totals(joined: JoinedDump) -> Iterator[Finding]:
    """Every rule about sums of allocations."""
    dump = joined.dump
    if dump.assignment is None:
        return
    total = sum(allocation.size for allocation in joined.allocations)
    if dump.values is not None and dump.values.total_bytes != total:
        said = dump.values.total_bytes
        yield wrong_sum("totals/total-bytes", f"`Total bytes used` says {said}", total)
    if isinstance(dump.report, AllocationReport):
        yield from _check_allocation_report(joined, dump.report, total)
    if isinstance(dump.report, SpaceReport):
        yield from _check_space_report(joined, dump.report)


def _check_allocation_report(
    joined: JoinedDump, report: AllocationReport, total: int
) -> Iterator[Finding]:
    if report.total_bytes != total:
        yield wrong_sum("totals/report", f"the usage report says {report.total_bytes}", total)
    size_of = {allocation.index: allocation.size for allocation in joined.allocations}
    cumulative = 0
    for row in report.rows:
        index = row.allocation.index
        if index not in size_of:
            message = f"the usage report lists allocation {index}, which does not exist"
            yield Finding(rule="totals/report", message=message, allocations=(index,))
            return
        cumulative += size_of[index]
        if row.allocation.size != human_bytes(size_of[index]):
            said = f"the usage report says {row.allocation.size} for allocation {index}"
            yield wrong_sum("totals/report", said, size_of[index], index)
        left = human_bytes(total - cumulative)
        right = human_bytes(cumulative), _percent(cumulative, total), left
        if (row.cumulative, row.percent, row.remaining) != right:
            said = (
                f"{row.cumulative} ({row.percent}%), {row.remaining} left, with allocation {index}"
            )
            yield wrong_sum("totals/report", f"the usage report counts {said}", cumulative, index)
            return
    for detail in report.details:
        if detail.table is not None:
            yield from _check_table(detail.table)


def _check_space_report(joined: JoinedDump, report: SpaceReport) -> Iterator[Finding]:
    for space in report.spaces:
        total = sum(
            allocation.size for allocation in joined.allocations if allocation.color == space.color
        )
        if space.total_bytes != total:
            said = f"the report of color {space.color} says {space.total_bytes}"
            yield wrong_sum("totals/report", said, total)
        for table in space.tables:
            yield from _check_table(table)


def _check_table(table: UsageTable) -> Iterator[Finding]:
    """The running sums and percentages of a table, as far as rounded numbers tell."""
    total_least = sum(_bounds(row.size)[0] for row in table.rows)
    total_most = sum(_bounds(row.size)[1] for row in table.rows)
    is_whole = table.rest is None and total_least > 0
    least, most = 0.0, 0.0
    for row in table.rows:
        low, high = _bounds(row.size)
        least, most = least + low, most + high
        said_low, said_high = _bounds(row.cumulative)
        if said_high < least or most < said_low:
            said = f"the usage report counts {row.cumulative} with offset {row.offset}"
            yield wrong_sum("totals/report", said, human_bytes(int(most)))
            return
        if is_whole and not (
            100 * least / total_most - 1 < float(row.percent) < 100 * most / total_least + 1
        ):
            said = f"the usage report says {row.percent}% for {row.cumulative}"
            yield wrong_sum("totals/report", said, human_bytes(int(total_most)))
            return


def _percent(part: int, total: int) -> int | str:
    return int(f"{100.0 * part / total:.0f}") if total else "-nan"


def _bounds(text: str) -> tuple[float, float]:
    """The least and most bytes that are written like this; XLA cuts before it rounds."""
    match = _ROUNDED.fullmatch(text)
    if match is None:
        return -math.inf, math.inf
    unit = 1024.0 ** _POWERS[match.group(3)]
    slack = unit / 10 ** len(match.group(2)) if match.group(2) else 0.0
    return float(match.group(1)) * unit - slack, float(match.group(1)) * unit + slack


def wrong_sum(
    rule: str, said: str, total: int | str, allocation: AllocationIndex | None = None
) -> Finding:
    """A sum that is not what the lines it counts add up to."""
    return Finding(
        rule=rule,
        message=f"{said}, the sum is {total}",
        allocations=() if allocation is None else (allocation,),
    )
