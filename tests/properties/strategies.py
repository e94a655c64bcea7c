"""Hypothesis strategies for the records of a dump.

They draw whatever the text of a dump can say. What it cannot, and so is never drawn:

- a name with a space or one of `{}<>:,()|`; a shape or an instruction with a line end;
- a value at no position at all (XLA lists at least the one that defines it);
- a colour that differs between a value and its line in a list of reuse;
- an unknown attribute that reads as a known one, or as two (`, `), or leaves a `|` open;
- a peak whose buffers do not all carry, or all lack, their index and their sum;
- a list at the peak that breaks off, where nothing follows it;
- a tree whose nodes hold fewer bytes than its head says;
- a report that lists fewer allocations with their values than without.
"""

from __future__ import annotations

import re

from hypothesis import strategies as st

from hlomem.base.quantities import Step
from hlomem.dump.grammar import human_bytes
from hlomem.dump.records import (
    Allocation,
    AllocationDetail,
    AllocationReport,
    AllocationRow,
    AssignedValue,
    Assignment,
    LiveRange,
    LiveRanges,
    MemorySpace,
    Parameter,
    PeakBuffer,
    Position,
    ReportedAllocation,
    ShapeCount,
    SpaceReport,
    StackTrace,
    TraceNode,
    UnknownAttribute,
    UsageRow,
    UsageTable,
    Use,
    UsedValue,
    Value,
    Values,
)
from hlomem.dump.values import Style
from tests import plain

BIGGEST = 2**63 - 1

counts = st.integers(0, 100) | st.integers(0, BIGGEST)
numbers = counts | st.integers(-BIGGEST, BIGGEST)
# All of Unicode, with the surrogates that stand for bytes that are not UTF-8.
_characters = st.characters(exclude_characters="\n\r")
_characters_but_bars = st.characters(exclude_characters="\n\r|")
_name_characters = st.characters(
    exclude_categories=["Zs", "Zl", "Zp"],
    exclude_characters="{}<>:,()|\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85",
)
lines = st.text(_characters, min_size=1, max_size=12)
_plain_names = st.text("abxyz019_.-", min_size=1, max_size=8)
names = _plain_names | st.text(_name_characters, min_size=1, max_size=8)
indices = st.lists(st.integers(0, 12) | st.integers(0, 999_999_999), max_size=3).map(tuple)
optional_indices = st.none() | indices
between_bars = st.text(_characters_but_bars, max_size=8)
styles = st.builds(
    Style,
    space_before_instruction=st.booleans(),
    newline_after_instruction=st.booleans(),
    says_none=st.booleans(),
)

_KNOWN = re.compile(
    r"(?:color|page|parameter) |output shape is "
    r"|(?:constant|thread-local|maybe-live-out|preallocated-temp)\Z"
)
_unknown_texts = (
    st.builds(
        "{}{}{}".format,
        st.text(_characters_but_bars, min_size=1, max_size=8),
        st.just("") | between_bars.map("|{}|".format),
        st.text(st.sampled_from("abc-:, "), max_size=4),
    )
    .filter(lambda text: ", " not in re.sub(r"\|[^|]*\|", "||", text))
    .filter(lambda text: not _KNOWN.match(text))
)


def _known_attributes(color: int, *others: object) -> int:
    """How many attributes a header prints, beside the unknown ones."""
    return (color != 0) + sum(other is not None and other is not False for other in others)


@st.composite
def _attributes(draw: st.DrawFn, *, pages: bool) -> dict[str, object]:
    color = draw(st.just(0) | st.integers(-3, 12) | numbers)
    page = draw(counts) if pages else None
    parameter = draw(
        st.none() | st.builds(Parameter, number=counts, shape=between_bars, index=indices)
    )
    output_shape = draw(st.none() | between_bars)
    flags = {
        name: draw(st.booleans())
        for name in ("is_constant", "is_thread_local", "maybe_live_out", "is_preallocated_temp")
    }
    known = _known_attributes(color, page, parameter, output_shape, *flags.values())
    texts = draw(st.just([]) | st.lists(_unknown_texts, max_size=3))
    positions = sorted(draw(st.integers(0, known)) for _ in texts)
    unknown = tuple(
        UnknownAttribute(text=text, position=position)
        for text, position in zip(texts, positions, strict=True)
    )
    return {
        "color": color,
        "page": page,
        "parameter": parameter,
        "output_shape": output_shape,
        "unknown": unknown,
        **flags,
    }


_named = {"id": numbers, "name": names, "index": optional_indices, "is_phi": st.booleans()}
_assigned_values = st.builds(
    AssignedValue,
    **_named,
    color=st.none() | numbers,
    size=numbers,
    offset=numbers,
    shape=lines,
)
_reused = st.none() | st.lists(st.builds(Value, **_named, color=numbers), max_size=3).map(tuple)


@st.composite
def allocations(draw: st.DrawFn, *, pages: bool) -> Allocation:
    """One allocation, with a page where this XLA prints one."""
    return plain.Allocation(
        index=draw(numbers),
        size=draw(numbers),
        values=tuple(draw(st.lists(_assigned_values, max_size=3))),
        reused_across_colors=draw(_reused),
        **draw(_attributes(pages=pages)),
    )


def assignments(*, pages: bool = True) -> st.SearchStrategy[Assignment]:
    """Allocations."""
    return st.builds(
        Assignment, allocations=st.lists(allocations(pages=pages), max_size=4).map(tuple)
    )


_used_values = st.builds(
    UsedValue,
    **_named,
    color=st.none() | numbers,
    positions=st.lists(
        st.builds(Position, instruction=names, index=optional_indices), min_size=1, max_size=3
    ).map(tuple),
    uses=st.none()
    | st.lists(
        st.builds(Use, instruction=names, operand=numbers, index=optional_indices), max_size=3
    ).map(tuple),
    instruction=st.text(_characters | st.sampled_from("<>"), max_size=12).map("%{}".format),
)
values = st.builds(
    Values, total_bytes=numbers, values=st.lists(_used_values, max_size=4).map(tuple)
)


@st.composite
def stack_traces(draw: st.DrawFn) -> StackTrace:
    """A tree of any depths, even such as skip a level."""
    nodes = []
    for _ in range(draw(st.integers(0, 6))):
        depth = draw(st.integers(0, 4))
        name = draw(_node_names if depth else _root_names)
        nodes.append(
            TraceNode(
                name=name,
                depth=depth,
                percent=draw(st.integers(0, 9999)) / 10,
                total=draw(numbers),
                current=draw(st.integers(0, 2**40)),
                remaining=draw(numbers),
            )
        )
    total = sum(node.current for node in nodes) - draw(st.just(0) | counts)
    return StackTrace(total=max(total, -BIGGEST), nodes=tuple(nodes))


_node_names = st.one_of(
    _plain_names,
    lines,
    st.builds("{}(50%, total: 3\n{}".format, lines, _plain_names),
)
_root_names = _node_names.filter(lambda text: text[0] not in " │")


@st.composite
def live_ranges(
    draw: st.DrawFn, *, index: bool = True, cumulative: bool = True, stack_trace: bool = True
) -> LiveRanges:
    """A schedule with what this XLA prints of its peak, or with none."""
    ranges = draw(
        st.lists(
            st.builds(LiveRange, instruction=names, index=indices, start=numbers, end=numbers),
            max_size=5,
        )
    )
    sequence = draw(st.lists(lines, max_size=5))
    peak = None
    if draw(st.integers(0, 5)):
        moment = Step(draw(numbers))
        alive = [each.instruction for each in ranges if each.is_live_at(moment)]
        listed = draw(st.permutations(alive) | st.lists(names, min_size=len(alive), max_size=6))
        buffers = tuple(
            PeakBuffer(
                instruction=name,
                size=draw(numbers),
                index=draw(indices) if index else None,
                cumulative=draw(numbers) if cumulative else None,
            )
            for name in listed
        )
        trace = draw(stack_traces()) if stack_trace else None
        peak = plain.Peak(moment=moment, buffers=buffers, stack_trace=trace)
    return LiveRanges(end=draw(numbers), sequence=tuple(sequence), ranges=tuple(ranges), peak=peak)


rounded = counts.map(human_bytes)
percents = st.integers(0, 100) | st.integers(0, 999_999_999) | st.sampled_from(["nan", "-nan"])
_arrays = st.sampled_from(["f32[]", "s8[3]", "pred[128,0]", "bf16[2,<=4]{1,0}", "token[]"])
shapes = st.recursive(
    _arrays | _arrays.map("{}{{0:T(8, 128)}}".format),
    lambda inner: st.lists(inner, max_size=3).map(lambda each: f"({', '.join(each)})"),
    max_leaves=4,
)
_rows = st.builds(
    UsageRow,
    cumulative=rounded,
    percent=percents,
    size=rounded,
    offset=numbers,
    value_count=counts,
    shapes=st.lists(
        st.builds(ShapeCount, shape=shapes, count=st.just(1) | st.integers(1, 10**18 - 1)),
        min_size=1,
        max_size=3,
    ).map(tuple),
)


@st.composite
def _tables(draw: st.DrawFn) -> UsageTable:
    rest = draw(st.none() | counts)
    percent = 5 if rest is None else draw(st.integers(0, 100))
    rows = draw(st.lists(_rows, max_size=3))
    return UsageTable(rows=tuple(rows), rest=rest, rest_percent=percent)


@st.composite
def _reported_allocations(draw: st.DrawFn) -> ReportedAllocation:
    fields = draw(_attributes(pages=draw(st.booleans())))
    return ReportedAllocation(index=draw(numbers), size=draw(rounded), **fields)  # type: ignore[arg-type]


_details = st.builds(
    AllocationDetail, allocation=_reported_allocations(), table=st.none() | _tables()
)


@st.composite
def allocation_reports(draw: st.DrawFn) -> AllocationReport:
    """A report that sorts allocations by size."""
    row = st.builds(
        AllocationRow,
        cumulative=rounded,
        percent=percents,
        remaining=rounded,
        allocation=_reported_allocations(),
    )
    rows = draw(st.lists(row, max_size=3))
    rest = draw(st.none() | st.integers(0, 2))
    details = draw(st.lists(_details, min_size=len(rows) + (rest or 0), max_size=6))
    return AllocationReport(
        total_bytes=draw(numbers),
        rows=tuple(rows),
        rest=rest,
        rest_percent=5 if rest is None else draw(st.integers(0, 100)),
        details=tuple(details),
    )


space_reports = st.builds(
    SpaceReport,
    spaces=st.lists(
        st.builds(
            MemorySpace,
            name=st.just("") | lines,
            color=numbers,
            total_bytes=numbers,
            tables=st.lists(_tables(), max_size=3).map(tuple),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
)
