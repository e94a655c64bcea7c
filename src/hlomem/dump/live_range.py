"""`*-live-range.txt` (HloLiveRange::ToString, hlo_stack_trace.cc)."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from hlomem.base.errors import ParseError
from hlomem.base.native import kernel
from hlomem.base.source import Source, Span
from hlomem.dump.grammar import (
    INDEX,
    INT64,
    NAME,
    SPACED_INT64,
    Form,
    format_index,
    parse_index,
    parse_step,
    spaced,
    unexpected,
)
from hlomem.dump.records import LiveRange, LiveRanges, Peak, PeakBuffer, StackTrace, TraceNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hlomem.base.quantities import Step
    from hlomem.dump.records import ShapeIndex

TITLE = "HloLiveRange (max "

_read_sequence: Callable[[str], list[str] | None] | None = kernel(
    "hlomem.dump._lines", "read_sequence"
)
_read_ranges: Callable[[str], list[tuple[str, ShapeIndex, Step, Step]] | None] | None = kernel(
    "hlomem.dump._lines", "read_ranges"
)
"""Read lines as `_STEP` and `_RANGE` do; None if a line differs from XLA's format."""
_UNBOUNDED = "  Peak memory could not be determined due to unbounded dynamic shape.\n"

_HEADER = Form(
    (r"HloLiveRange \(max ", "`HloLiveRange (max`"),
    (rf"({INT64})\):\n", "a number and `):`"),
    ("  InstructionSequence:\n", "`  InstructionSequence:`"),
)
_STEP = Form((rf"    ({INT64}):", "four spaces and a number"), ("([^\n]+)\n", "an instruction"))
_RANGES_TITLE = Form(("  BufferLiveRange:\n", "a step after four spaces, or `  BufferLiveRange:`"))
_RANGE = Form(
    (rf"    ({NAME})({INDEX}):", "four spaces, an instruction, its shape index and `:`"),
    (rf"({INT64})-", "a number and `-`"),
    (rf"({INT64})\n", "a number"),
)
_PEAK_TITLE = Form(
    ("  Live ranges at ", "a live range after four spaces, or `  Live ranges at`"),
    (rf"({INT64}) ", "a number, the peak's moment"),
    (r"\(peak\):\n", "`(peak):`"),
)
_BUFFER = Form(
    (rf"    ({NAME})", "four spaces and an instruction"),
    (rf"({INDEX})?: ", "a shape index, or `: `"),
    (rf"({INT64}) bytes", "a number and `bytes`"),
    (rf"(?: \(cumulative: ({INT64}) bytes\))?\n", "`(cumulative: N bytes)`"),
)
_PERCENT = r"(?:0|[1-9][0-9]{0,2})\.[0-9]"
_TREE_TITLE = Form(
    ("  Stack trace breakdown for peak usage: ", "a buffer after four spaces, or `  Stack trace`"),
    (rf"({SPACED_INT64}) bytes\n", "a number and `bytes`"),
)
_NODE = Form(
    (r"(    (?! |│)|  (?:│   |    )+[├└]── )", "a branch of the tree"),
    (
        rf"((?:[^\n(]|\((?!{_PERCENT}%, total: )|\n(?!  [ │]))*) \((?={_PERCENT}%, total: )",
        "a name, then `(…%, total: `",
    ),
    (rf"({_PERCENT})%, total: ", "a percentage"),
    (rf"({SPACED_INT64}) bytes, current: ", "a number and `bytes, current:`"),
    (rf"({SPACED_INT64}) bytes, remaining: ", "a number and `bytes, remaining:`"),
    (rf"({SPACED_INT64}) bytes\)\n", "a number and `bytes)`"),
)
_INDENTED = Form(("(?:    [^\n]*\n)*", "indented lines"))


def parse(source: Source, start: int = 0, end: int | None = None) -> LiveRanges:
    """The text in [start, end), which begins with `HloLiveRange`."""
    end = len(source.text) if end is None else end
    header = _HEADER.require(source, start, end)
    sequence, cursor = _parse_sequence(source, header.end(), end)
    cursor = _RANGES_TITLE.require(source, cursor, end).end()
    block = _indented(source, cursor, end)
    ranges = _parse_ranges(source, cursor, block)
    peak, cursor = _parse_peak(source, block, end, ranges)
    if cursor != end:
        raise unexpected(source, cursor, "the end of the dump")
    return LiveRanges(end=int(header[1]), sequence=sequence, ranges=ranges, peak=peak)


def _parse_ranges(source: Source, start: int, end: int) -> tuple[LiveRange, ...]:
    rows = None
    if _read_ranges is not None and (block := source.text[start:end]).isascii():
        rows = _read_ranges(block)
    if rows is None:
        rows = [
            (name, parse_index(index) or (), parse_step(low), parse_step(high))
            for name, index, low, high in _RANGE.find_lines(source, start, end)
        ]
    return tuple(
        [
            LiveRange(instruction=name, index=index, start=low, end=high)
            for name, index, low, high in rows
        ]
    )


def _indented(source: Source, start: int, end: int) -> int:
    """The end of the lines with four leading spaces."""
    match = _INDENTED.match(source.text, start, end)
    assert match is not None
    return match.end()


def _parse_sequence(source: Source, start: int, end: int) -> tuple[tuple[str, ...], int]:
    stop = _indented(source, start, end)
    if _read_sequence is not None and (block := source.text[start:stop]).isascii():
        names = _read_sequence(block)
        if names is not None:
            return tuple(names), stop
    steps = _STEP.find_lines(source, start, stop)
    for wanted, (number, _) in enumerate(steps):
        if int(number) != wanted:
            cursor = start
            for _ in range(wanted):
                cursor = source.text.index("\n", cursor) + 1
            problem = f"expected step {wanted} of the sequence, found {number}"
            raise ParseError(source, Span(cursor + 4, cursor + 4 + len(number)), problem)
    return tuple([name for _, name in steps]), stop


def _parse_peak(
    source: Source, start: int, end: int, ranges: tuple[LiveRange, ...]
) -> tuple[Peak | None, int]:
    if source.text.startswith(_UNBOUNDED, start, end):
        return None, start + len(_UNBOUNDED)
    title = _PEAK_TITLE.require(source, start, end)
    stop = _indented(source, title.end(), end)
    buffers = tuple(
        [
            PeakBuffer(
                instruction=name,
                index=parse_index(index),
                size=int(size),
                cumulative=int(cumulative) if cumulative else None,
            )
            for name, index, size, cumulative in _BUFFER.find_lines(source, title.end(), stop)
        ]
    )
    _refuse_mixed_list(source, title.end(), buffers)
    moment, trace = parse_step(title[1]), None
    if stop < end:
        trace, stop = _parse_stack_trace(source, stop, end)
    else:
        _refuse_cut_list(source, stop, buffers, [r for r in ranges if r.is_live_at(moment)])
    return Peak(moment=moment, buffers=buffers, stack_trace=trace), stop


def _refuse_mixed_list(source: Source, start: int, buffers: tuple[PeakBuffer, ...]) -> None:
    """Either all buffers have an index, or none; likewise a cumulative size."""
    kinds = [(buffer.index is None, buffer.cumulative is None) for buffer in buffers]
    cursor = start
    for kind in kinds:
        stop = source.text.index("\n", cursor)
        if kind != kinds[0]:
            raise ParseError(source, Span(cursor, stop), "expected a buffer like the first")
        cursor = stop + 1


def _refuse_cut_list(
    source: Source, cursor: int, buffers: tuple[PeakBuffer, ...], live: list[LiveRange]
) -> None:
    """Refuse a truncated list at the end of the text.

    Up to jaxlib 0.6.0 it is in the order of the live ranges, so a truncated one is a prefix; later
    it is sorted by size and must contain every buffer that is live at the peak.
    """
    listed = [buffer.instruction for buffer in buffers]
    names = [life.instruction for life in live]
    is_sorted = bool(buffers) and buffers[0].cumulative is not None
    is_cut = not Counter(listed) - Counter(names) if is_sorted else listed == names[: len(listed)]
    if len(listed) < len(names) and is_cut:
        wanted = f"{len(names)} buffers alive at the peak, of which {len(listed)} are listed"
        raise unexpected(source, cursor, wanted)


def _parse_stack_trace(source: Source, start: int, end: int) -> tuple[StackTrace, int]:
    title = _TREE_TITLE.require(source, start, end)
    cursor, rows = title.end(), []
    while cursor < end:
        rows.append(_NODE.require(source, cursor, end))
        cursor = rows[-1].end()
    depths = [len(row[1]) // 4 - 1 for row in rows]
    for row, branch in zip(rows, _branches(depths), strict=True):
        if row[1] != branch:
            raise ParseError(source, Span(*row.span(1)), "the tree is cut off or drawn wrongly")
    nodes = tuple(
        [
            TraceNode(
                name=row[2],
                depth=depth,
                percent=float(row[3]),
                total=_number(row[4]),
                current=_number(row[5]),
                remaining=_number(row[6]),
            )
            for row, depth in zip(rows, depths, strict=True)
        ]
    )
    total = _number(title[1])
    if sum(node.current for node in nodes) < total:
        raise unexpected(source, cursor, f"more of the tree of {total} bytes")
    return StackTrace(total=total, nodes=nodes), cursor


def _number(text: str) -> int:
    return int(text.replace(" ", ""))


def _branches(depths: list[int]) -> list[str]:
    """The branches drawn before each node of a tree, from the depths of its nodes."""
    branches: list[str] = []
    open_levels: set[int] = set()  # the levels at which a sibling follows
    for depth in reversed(depths):
        bars = ["│   " if level in open_levels else "    " for level in range(depth)]
        connector = "  " if depth == 0 else "├── " if depth in open_levels else "└── "
        branches.append("".join(["  ", *bars, connector]))
        open_levels = {level for level in open_levels if level < depth} | {depth}
    branches.reverse()
    return branches


def format(  # noqa: A001 - the opposite of parse
    live: LiveRanges, *, index: bool = True, cumulative: bool = True, stack_trace: bool = True
) -> str:
    """XLA's text; the switches select what is printed of the peak."""
    ranges = [format_range(r.instruction, r.index, r.start, r.end) for r in live.ranges]
    peak = format_peak(live.peak, index=index, cumulative=cumulative, stack_trace=stack_trace)
    return "".join([format_sequence(live.end, live.sequence), *ranges, peak])


def format_sequence(end: int, names: Iterable[str]) -> str:
    steps = "".join([f"    {time}:{name}\n" for time, name in enumerate(names)])
    return f"{TITLE}{end}):\n  InstructionSequence:\n{steps}  BufferLiveRange:\n"


def format_range(name: str, index: ShapeIndex, start: Step, end: Step) -> str:
    return f"    {name}{format_index(index)}:{start}-{end}\n"


def format_peak(peak: Peak | None, *, index: bool, cumulative: bool, stack_trace: bool) -> str:
    if peak is None:
        return _UNBOUNDED
    parts = [f"  Live ranges at {peak.moment} (peak):\n"]
    for buffer in peak.buffers:
        where = format_index(buffer.index) if index else ""
        has_sum = cumulative and buffer.cumulative is not None
        sum_ = f" (cumulative: {buffer.cumulative} bytes)" if has_sum else ""
        parts.append(f"    {buffer.instruction}{where}: {buffer.size} bytes{sum_}\n")
    if stack_trace and (trace := peak.stack_trace) is not None:
        parts.append(f"  Stack trace breakdown for peak usage: {spaced(trace.total)} bytes\n")
        parts += map(_format_node, trace.nodes, _branches([node.depth for node in trace.nodes]))
    return "".join(parts)


def _format_node(node: TraceNode, branch: str) -> str:
    return (
        f"{branch}{node.name} ({node.percent:.1f}%, total: {spaced(node.total)} bytes, "
        f"current: {spaced(node.current)} bytes, remaining: {spaced(node.remaining)} bytes)\n"
    )


_VARIABLE = re.compile(r"[a-zA-Z_]\w*", re.ASCII)
_KEY_OR_ATTRIBUTE = re.compile(r"\['([^']+)'\]|\.(\w+)", re.ASCII)


def split_name(name: str) -> list[str]:
    """The nodes of `params['layer/fc'].attr` in a stack trace; other names are one node."""
    variable = _VARIABLE.match(name)
    if variable is None:
        return [name]
    parts = [variable[0]]
    has_keys = False
    position = variable.end()
    while (match := _KEY_OR_ATTRIBUTE.match(name, position)) is not None:
        key, attribute = match.groups()
        parts += key.split("/") if key is not None else [attribute]
        has_keys = has_keys or key is not None
        position = match.end()
    return parts if has_keys and position == len(name) else [name]
