"""Sums agree with what they sum: total bytes, peak lists, usage reports.

A usage report rounds its sizes ("1.5KiB"): a sum is held against it in the same rounded form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.check.findings import Finding
from hlomem.dump.numbers import human_bytes
from hlomem.dump.records import AllocationReport, SpaceReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.check.plan import Plan
    from hlomem.dump.records import Peak


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
    for row in report.rows:
        index = row.allocation.index
        if index not in size_of:
            message = f"the usage report lists allocation {index}, which there is not"
            yield Finding(rule="totals/report", message=message, allocations=(index,))
        elif row.allocation.size != human_bytes(size_of[index]):
            said = f"the usage report says {row.allocation.size} for allocation {index}"
            yield _sum("report", said, size_of[index], index)


def _check_space_report(plan: Plan, report: SpaceReport) -> Iterator[Finding]:
    for space in report.spaces:
        total = sum(each.size for each in plan.allocations if each.color == space.color)
        if space.total_bytes != total:
            yield _sum(
                "report", f"the report of color {space.color} says {space.total_bytes}", total
            )


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
    if peak.stack_trace is not None and peak.stack_trace.total != cumulative:
        yield _sum("peak", f"the tree at the peak says {peak.stack_trace.total}", cumulative)


def _sum(rule: str, said: str, total: int, allocation: int | None = None) -> Finding:
    return Finding(
        rule=f"totals/{rule}",
        message=f"{said}, the sum is {total}",
        allocations=() if allocation is None else (allocation,),
    )
