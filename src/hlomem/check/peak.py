"""What a dump says about the peak agrees with its live ranges, its shapes and itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.check.findings import Finding
from hlomem.check.totals import wrong_sum
from hlomem.view.guess_machine import unpadded_size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.dump.records import LiveRanges, Peak, StackTrace
    from hlomem.view.joined import JoinedDump

_ROUNDING = 0.06
"""Percentages have one digit behind the point."""


def check_peak(joined: JoinedDump) -> Iterator[Finding]:
    """Every rule about the list and the tree at the peak."""
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
    """Each buffer counts with the bytes of its shape, which add up.

    Until XLA printed the index, a value was said to weigh what its whole instruction weighs.
    """
    is_whole = joined.dump.eras[0].features.peak_index is False
    shape_of = {
        (each.value.name, each.index): text.shape_text if is_whole else each.value.shape
        for each in joined.placed
        if (text := joined.printed.get(each.value.name)) is not None
    }
    cumulative = 0
    for buffer in peak.buffers:
        cumulative += buffer.size
        size = unpadded_size_of(shape_of.get((buffer.instruction, buffer.index or ()), ""))
        if size is not None and size != buffer.size:
            yield wrong_sum(
                "totals/peak", f"the peak counts {buffer.size} for {buffer.instruction}", size
            )
        if buffer.cumulative is not None and buffer.cumulative != cumulative:
            said = f"the peak counts {buffer.cumulative} up to {buffer.instruction}"
            yield wrong_sum("totals/peak", said, cumulative)
            return


def _check_list(live: LiveRanges, peak: Peak) -> Iterator[Finding]:
    alive = sorted(each.instruction for each in live.ranges if each.is_live_at(peak.moment))
    listed = sorted(buffer.instruction for buffer in peak.buffers)
    if alive != listed:
        message = f"the list at the peak ({peak.moment}) is not what is alive there"
        odd = sorted({*alive} ^ {*listed})[:5]
        evidence = (f"{len(alive)} values are alive, {len(listed)} listed", *odd)
        yield Finding(rule="totals/peak", message=message, evidence=evidence)


def _check_moment(joined: JoinedDump, live: LiveRanges, peak: Peak) -> Iterator[Finding]:
    """It is the first moment with most bytes (`HloLiveRange::ComputePeakMemoryMoment`).

    XLA counts the whole result of an instruction for each of its values, and a value at the moment
    after its last, too.
    """
    change_at: dict[int, int] = {}
    for each in live.ranges:
        text = joined.printed.get(each.instruction)
        size = unpadded_size_of(text.shape_text) if text is not None else None
        if size is None:
            return
        change_at[each.start] = change_at.get(each.start, 0) + size
        change_at[each.end + 2] = change_at.get(each.end + 2, 0) - size
    most, alive, moment = 0, 0, 0
    for time in sorted(change_at):
        alive += change_at[time]
        if alive > most:
            most, moment = alive, time
    if moment != peak.moment:
        message = f"the peak is said to be at {peak.moment}, but is at {moment}"
        yield Finding(rule="totals/peak", message=message)


def _check_tree(tree: StackTrace, total: int) -> Iterator[Finding]:
    """A node is as large as its own bytes and its children; what is not counted yet remains."""
    if tree.total != total:
        yield wrong_sum("totals/peak", f"the tree at the peak says {tree.total}", total)
        return
    children: dict[int, int] = {}  # by depth, of the node that is yet to come
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
