"""Sums agree with what they sum: total bytes, peak lists, usage reports.

A usage report rounds its sizes ("1.5KiB"): a sum is held against it in the same rounded form.
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

    from hlomem.check.plan import Plan
    from hlomem.dump.records import Peak, StackTrace, UsageTable


def check_totals(plan: Plan) -> Iterator[Finding]:
    """Every rule about sums."""
    dump = plan.dump
    if dump.assignment is not None:
        total = sum(each.size for each in plan.allocations)
        if dump.values is not None and dump.values.total_bytes != total:
            said = dump.values.total_bytes
            yield _sum("total-bytes", f"`Total bytes used` says {said}", total)
        if isinstance(dump.report, AllocationReport):
            yield from _check_allocation_report(plan, dump.report, total)
        if isinstance(dump.report, SpaceReport):
            yield from _check_space_report(plan, dump.report)
    if dump.live_ranges is not None and dump.live_ranges.peak is not None:
        yield from _check_peak(plan, dump.live_ranges.peak)


def _check_allocation_report(plan: Plan, report: AllocationReport, total: int) -> Iterator[Finding]:
    if report.total_bytes != total:
        yield _sum("report", f"the usage report says {report.total_bytes}", total)
    size_of = {each.index: each.size for each in plan.allocations}
    cumulative = 0
    for row in report.rows:
        index = row.allocation.index
        if index not in size_of:
            message = f"the usage report lists allocation {index}, which there is not"
            yield Finding(rule="totals/report", message=message, allocations=(index,))
            return
        size = size_of[index]
        cumulative += size
        if row.allocation.size != human_bytes(size):
            said = f"the usage report says {row.allocation.size} for allocation {index}"
            yield _sum("report", said, size, index)
        said = (row.cumulative, row.percent, row.remaining)
        if said != (human_bytes(cumulative), _percent(cumulative, total), human_bytes(total - cumulative)):
            problem = f"the usage report counts {row.cumulative} ({row.percent}%), {row.remaining} left"
            yield _sum("report", f"{problem} up to allocation {index}", cumulative, index)
            return
    for detail in report.details:
        if detail.table is not None:
            yield from _check_table(detail.table, detail.allocation.index)


def _check_space_report(plan: Plan, report: SpaceReport) -> Iterator[Finding]:
    for space in report.spaces:
        total = sum(each.size for each in plan.allocations if each.color == space.color)
        if space.total_bytes != total:
            yield _sum(
                "report", f"the report of color {space.color} says {space.total_bytes}", total
            )
        for table in space.tables:
            yield from _check_table(table)


def _check_table(table: UsageTable, allocation: int | None = None) -> Iterator[Finding]:
    """The running sums of a table are those of its sizes, as far as rounded numbers tell."""
    low = high = 0
    for row in table.rows:
        least, most = _bounds(row.size)
        low, high = low + least, high + most
        counted = _bounds(row.cumulative)
        if counted[1] < low or high < counted[0]:
            said = f"the usage report counts {row.cumulative} up to offset {row.offset}"
            yield _sum("report", said, f"{human_bytes(low)} or so", allocation)
            return
    if table.rest is not None or not high:
        return
    for row in table.rows:
        least, most = _bounds(row.cumulative)
        if not 100 * least / high - 1 < float(row.percent) < 100 * most / max(low, 1) + 1:
            said = f"the usage report says {row.percent}% for {row.cumulative}"
            yield _sum("report", said, f"{human_bytes(high)} or so", allocation)
            return


def _percent(part: int, total: int) -> int | str:
    return int(f"{100.0 * part / total:.0f}") if total else "-nan"


_UNITS = {unit: 1024**power for power, unit in enumerate(["B", "KiB", "MiB", "GiB", "TiB", "PiB"])}
_ROUNDED = re.compile(r"(-?\d+(?:\.(\d+))?)([KMGTP]?i?B)")


def _bounds(text: str) -> tuple[float, float]:
    """The sizes that are written like this: `1.5KiB` is 1485 to 1587 bytes."""
    match = _ROUNDED.fullmatch(text)
    if match is None or match.group(3) not in _UNITS:
        return -math.inf, math.inf
    unit = _UNITS[match.group(3)]
    # XLA cuts before it rounds.
    slack = unit * 10 ** -len(match.group(2) or "") if match.group(2) else 0
    return float(match.group(1)) * unit - slack, float(match.group(1)) * unit + slack


def _check_peak(plan: Plan, peak: Peak) -> Iterator[Finding]:
    live = plan.dump.live_ranges
    assert live is not None
    cumulative = 0
    for buffer in peak.buffers:
        cumulative += buffer.size
        if buffer.cumulative is not None and buffer.cumulative != cumulative:
            said = f"the peak counts {buffer.cumulative} up to {buffer.instruction}"
            yield _sum("peak", said, cumulative)
            return
    alive = sorted(each.instruction for each in live.ranges if each.is_live_at(peak.moment))
    listed = sorted(buffer.instruction for buffer in peak.buffers)
    if alive != listed:
        message = f"the list at the peak ({peak.moment}) is not what is alive there"
        odd = sorted({*alive} ^ {*listed})[:5]
        evidence = (f"{len(alive)} values are alive, {len(listed)} listed", *odd)
        yield Finding(rule="totals/peak", message=message, evidence=evidence)
    if peak.stack_trace is not None:
        yield from _check_trace(peak.stack_trace, cumulative)


def _check_trace(trace: StackTrace, total: int) -> Iterator[Finding]:
    """A node is as large as what it holds itself and its children; what is above has been counted."""
    if trace.total != total:
        yield _sum("peak", f"the tree at the peak says {trace.total}", total)
        return
    below = [0] * (1 + max((node.depth for node in trace.nodes), default=0) + 1)
    for node in reversed(trace.nodes):
        size = node.current + below[node.depth + 1]
        below[node.depth + 1] = 0
        below[node.depth] += size
        if node.total != size:
            yield _sum("peak", f"the tree at the peak says {node.total} for {node.name}", size)
            return
    remaining = total
    for node in trace.nodes:
        remaining -= node.current
        if node.remaining != remaining:
            said = f"the tree at the peak says {node.remaining} remain after {node.name}"
            yield _sum("peak", said, remaining)
            return
        if abs(node.percent - 100.0 * node.total / max(total, 1)) > 0.06:
            said = f"the tree at the peak says {node.percent}% for {node.name}"
            yield _sum("peak", said, node.total)
            return


def _sum(rule: str, said: str, total: int | str, allocation: int | None = None) -> Finding:
    return Finding(
        rule=f"totals/{rule}",
        message=f"{said}, the sum is {total}",
        allocations=() if allocation is None else (allocation,),
    )
