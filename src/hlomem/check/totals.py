"""Totals, usage reports and the peak must agree with the lines they sum, up to rounding."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from hlomem.check.findings import Finding
from hlomem.dump.grammar import human_bytes
from hlomem.dump.records import AllocationReport, SpaceReport
from hlomem.view.guess_machine import unpadded_size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.base.quantities import AllocationIndex
    from hlomem.dump.records import LiveRanges, Peak, StackTrace, UsageTable
    from hlomem.view.joined import JoinedDump

_ROUNDED = re.compile(r"(-?\d+(?:\.(\d+))?)([KMGTPE]iB|B)")
_POWERS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5, "EiB": 6}


def check_totals(joined: JoinedDump) -> Iterator[Finding]:
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
            yield Finding("totals/report", message, allocations=(index,))
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
    """The cumulative sums and percentages of a table, within the rounding error."""
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
    """The range of sizes with this rounded text; XLA truncates before it rounds."""
    match = _ROUNDED.fullmatch(text)
    if match is None:
        return -math.inf, math.inf
    unit = 1024.0 ** _POWERS[match.group(3)]
    slack = unit / 10 ** len(match.group(2)) if match.group(2) else 0.0
    return float(match.group(1)) * unit - slack, float(match.group(1)) * unit + slack


def wrong_sum(
    rule: str, said: str, total: int | str, allocation: AllocationIndex | None = None
) -> Finding:
    return Finding(
        rule, f"{said}, the sum is {total}", allocations=() if allocation is None else (allocation,)
    )


# The peak.

_ROUNDING = 0.06
"""Percentages have one decimal digit."""


def check_peak(joined: JoinedDump) -> Iterator[Finding]:
    live = joined.dump.live_ranges
    if live is None or live.peak is None:
        return
    yield from _check_sizes(joined, live.peak)
    yield from _check_list(live, live.peak)
    yield from _check_moment(joined, live, live.peak)
    if live.peak.stack_trace is not None:
        total = sum(buffer.size for buffer in live.peak.buffers)
        yield from _check_tree(live.peak.stack_trace, total)


def _check_sizes(joined: JoinedDump, peak: Peak) -> Iterator[Finding]:
    """Each buffer counts the bytes of its shape; before XLA printed indices, of its instruction."""
    is_whole = joined.dump.eras[0].features.peak_index is False
    cumulative = 0
    for buffer in peak.buffers:
        cumulative += buffer.size
        placed = joined.placed_by_name.get((buffer.instruction, buffer.index or ()))
        text = joined.printed.get(buffer.instruction) if placed is not None else None
        shape = placed.value.shape if text is not None and placed is not None else ""
        size = unpadded_size_of(text.shape_text if text is not None and is_whole else shape)
        if size is not None and size != buffer.size:
            said = f"the peak counts {buffer.size} for {buffer.instruction}"
            yield wrong_sum("totals/peak", said, size)
        if buffer.cumulative is not None and buffer.cumulative != cumulative:
            said = f"the peak counts {buffer.cumulative} up to {buffer.instruction}"
            yield wrong_sum("totals/peak", said, cumulative)
            return


def _check_list(live: LiveRanges, peak: Peak) -> Iterator[Finding]:
    alive = sorted(life.instruction for life in live.ranges if life.is_live_at(peak.moment))
    listed = sorted(buffer.instruction for buffer in peak.buffers)
    if alive != listed:
        message = f"the list at the peak ({peak.moment}) is not what is alive there"
        odd = sorted({*alive} ^ {*listed})[:5]
        evidence = (f"{len(alive)} values are alive, {len(listed)} listed", *odd)
        yield Finding("totals/peak", message, evidence=evidence)


def _check_moment(joined: JoinedDump, live: LiveRanges, peak: Peak) -> Iterator[Finding]:
    """The peak is the first step with most bytes (`HloLiveRange::ComputePeakMemoryMoment`).

    XLA counts the whole result of an instruction for each of its values, which also count at the
    step after their last.
    """
    change_at: dict[int, int] = {}
    size_of: dict[str, int | None] = {}
    for life in live.ranges:
        text = joined.printed.get(life.instruction)
        if text is None:
            return
        size = size_of.get(text.shape_text)
        if size is None:
            size = size_of[text.shape_text] = unpadded_size_of(text.shape_text)
        if size is None:
            return
        change_at[life.start] = change_at.get(life.start, 0) + size
        change_at[life.end + 2] = change_at.get(life.end + 2, 0) - size
    most, alive, moment = 0, 0, 0
    for time in sorted(change_at):
        alive += change_at[time]
        if alive > most:
            most, moment = alive, time
    if moment != peak.moment:
        message = f"the peak is said to be at {peak.moment}, but is at {moment}"
        yield Finding("totals/peak", message)


def _check_tree(tree: StackTrace, total: int) -> Iterator[Finding]:
    """A node's total is its own bytes and its children's; the rest remains."""
    if tree.total != total:
        yield wrong_sum("totals/peak", f"the tree at the peak says {tree.total}", total)
        return
    children: dict[int, int] = {}  # by depth, of the next node
    for node in reversed(tree.nodes):
        size = node.current + children.pop(node.depth + 1, 0)
        children[node.depth] = children.get(node.depth, 0) + size
        if node.total != size:
            said = f"the tree at the peak says {node.total} for {node.name}"
            yield wrong_sum("totals/peak", said, size)
            return
    remaining = total
    for node in tree.nodes:
        remaining -= node.current
        if node.remaining != remaining:
            said = f"the tree at the peak says {node.remaining} remain after {node.name}"
            yield wrong_sum("totals/peak", said, remaining)
            return
        if abs(node.percent - 100.0 * node.total / max(total, 1)) > _ROUNDING:
            said = f"the tree at the peak says {node.percent}% for {node.name}"
            yield wrong_sum("totals/peak", said, f"{node.total} of {total}")
            return
