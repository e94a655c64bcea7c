"""The peak a dump reports agrees with its live ranges, its shapes and itself."""

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
    cumulative = 0
    for buffer in peak.buffers:
        cumulative += buffer.size
        placed = joined.placed_by_name.get((buffer.instruction, buffer.index or ()))
        text = joined.printed.get(buffer.instruction) if placed is not None else None
        shape = placed.value.shape if text is not None and placed is not None else ""
        size = unpadded_size_of(text.shape_text if text is not None and is_whole else shape)
        if size is not None and size != buffer.size:
            yield wrong_sum(
                "totals/peak", f"the peak counts {buffer.size} for {buffer.instruction}", size
            )
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
        yield Finding(rule="totals/peak", message=message, evidence=evidence)


def _check_moment(joined: JoinedDump, live: LiveRanges, peak: Peak) -> Iterator[Finding]:
    """The peak is the first moment with most bytes (`HloLiveRange::ComputePeakMemoryMoment`).

    XLA counts the whole result of an instruction for each of its values, and a value at the moment
    after its last, too.
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
        yield Finding(rule="totals/peak", message=message)


def _check_tree(tree: StackTrace, total: int) -> Iterator[Finding]:
    """A node's total is its own bytes and its children's; the remainder is not counted yet."""
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
