"""A plan → the records of XLA's four files.

In: the stages of a plan and the features of the dump to build. Out: the records that
`hlomem.dump.parts.format_part` prints. With `hlomem.write.plan_text`, which has no use for records,
the only bridge from the planner to the dumps. Mirrors the `ToString` functions of
`service/buffer_assignment.cc`, `service/hlo_value.cc` and `hlo/utils/hlo_live_range.cc`.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING

from hlomem.dump.numbers import human_bytes
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
    Peak,
    PeakBuffer,
    Position,
    ReportedAllocation,
    ShapeCount,
    SpaceReport,
    StackTrace,
    TraceNode,
    UsageRow,
    UsageTable,
    Use,
    UsedValue,
    Values,
)
from hlomem.hlo.padding import unpadded_size
from hlomem.hlo.text.style import TextStyle
from hlomem.machines.machine import xla_space_name
from hlomem.write.instruction_text import InstructionTexts
from hlomem.write.stack_trace import break_down
from hlomem.write.usage_ranking import allocations_by_size, count_shown, places_by_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hlomem.analysis.values import HloValue, UseFinder
    from hlomem.assign.allocation import BufferAllocation, BufferAssignment
    from hlomem.assign.colors import ColorOf
    from hlomem.base.quantities import Color
    from hlomem.dump.eras import Features
    from hlomem.dump.parts import Contents
    from hlomem.dump.records import UsageReport
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.pipeline import Stages


_by_id = attrgetter("id")


def build_contents(stages: Stages, features: Features) -> Contents:
    """Everything XLA would write about a plan."""
    from hlomem.dump.parts import Contents  # noqa: PLC0415 - texts do without

    stages.check_written()
    return Contents(
        build_assignment(stages),
        build_values(stages, features),
        build_live_ranges(stages, features),
        build_report(stages, features),
    )


# `*-buffer-assignment.txt`


def build_assignment(stages: Stages) -> Assignment:
    """The allocations and the values in them."""
    return Assignment(
        allocations=tuple(
            [
                build_allocation(
                    stages, allocation, tuple(_build_assigned_values(allocation, stages.colors))
                )
                for allocation in stages.assignment.allocations
            ]
        )
    )


def build_allocation(
    stages: Stages, allocation: BufferAllocation, values: tuple[AssignedValue, ...] = ()
) -> Allocation:
    """The header of an allocation and the values below it."""
    entry = stages.module.entry
    parameter = None
    if allocation.parameter is not None:
        number, index, _ = allocation.parameter
        shape = entry.parameters[number].shape.subshape(index)
        parameter = Parameter(number=number, shape=shape.text_without_layout, index=index)
    return Allocation(
        index=allocation.index,
        size=allocation.size,
        color=allocation.color,
        page=0,
        parameter=parameter,
        output_shape=entry.root.shape.text_without_layout
        if _holds_result(allocation, entry.root)
        else None,
        is_constant=allocation.is_constant,
        is_thread_local=allocation.is_thread_local,
        maybe_live_out=allocation.maybe_live_out,
        is_preallocated_temp=allocation.is_preallocated_temp,
        values=values,
    )


def _build_assigned_values(
    allocation: BufferAllocation, color_of: ColorOf
) -> Iterator[AssignedValue]:
    for value in values_in(allocation):
        instruction = value.instruction
        offset, size = allocation.slices[value]
        yield AssignedValue(
            id=value.id,
            name=instruction.name,
            index=value.index if instruction.shape.is_tuple else None,
            is_phi=value.is_phi,
            color=color_of[value],
            size=size,
            offset=offset,
            shape=value.shape.text,
        )


def values_in(allocation: BufferAllocation) -> Collection[HloValue]:
    """The values in an allocation, in the order of the dump."""
    slices = allocation.slices
    return slices if len(slices) == 1 else sorted(slices, key=_by_id)


def _holds_result(allocation: BufferAllocation, root: HloInstruction) -> bool:
    """Whether the top level of the program's result lies here (`GetOutputInstruction`)."""
    return allocation.maybe_live_out and any(
        instruction is root and not index
        for value in allocation.slices
        for instruction, index in value.positions
    )


# `*-buffer-assignment-values.txt`


def build_values(stages: Stages, features: Features) -> Values:
    """The values that have a place, with their positions and uses."""
    texts = instruction_texts(stages.module, features)
    finder, color_of = stages.dataflow.use_finder, stages.colors
    return Values(
        total_bytes=stages.assignment.total_bytes,
        values=tuple(
            [
                _build_value(value, color_of[value], texts, finder)
                for value in placed_values(stages.assignment)
            ]
        ),
    )


def instruction_texts(module: HloModule, features: Features) -> InstructionTexts:
    """The instructions as they are printed beside their values."""
    style = TextStyle(
        operand_shapes=bool(features.operand_shapes),
        async_sugar=True,
        proto_order=features.pages is not False,
    )
    return InstructionTexts(module, style)


def placed_values(assignment: BufferAssignment) -> list[HloValue]:
    """The values that have a place, in the order of the dump."""
    values = [value for allocation in assignment.allocations for value in allocation.slices]
    return sorted(values, key=_by_id)


def _build_value(
    value: HloValue, color: Color, texts: InstructionTexts, finder: UseFinder
) -> UsedValue:
    positions: list[Position] = []
    uses: list[Use] = []
    for (holder, index), users in zip(value.positions, finder.readers(value), strict=True):
        shown = index if holder.shape.is_tuple else None
        positions.append(Position(holder.name, shown))
        for user in users:
            if len(user.operands) == 1:
                uses.append(Use(user.name, 0, shown))
            else:
                numbers = finder.operand_numbers(user, holder)
                uses += [Use(user.name, number, shown) for number in numbers]
    instruction = value.instruction
    return UsedValue(
        id=value.id,
        name=instruction.name,
        index=positions[0].index,
        is_phi=value.is_phi,
        color=color,
        positions=tuple(positions),
        uses=tuple(uses),
        instruction=texts[instruction],
    )


# `*-live-range.txt`


def build_live_ranges(stages: Stages, features: Features) -> LiveRanges:
    """The schedule, the live ranges and what is alive at the peak."""
    live_ranges = stages.live_ranges
    return LiveRanges(
        end=live_ranges.end,
        sequence=tuple([instruction.name for instruction in live_ranges.sequence]),
        ranges=tuple(
            [
                LiveRange(
                    instruction=value.instruction.name, index=value.index, start=start, end=end
                )
                for value, (start, end) in live_ranges.range_of.items()
            ]
        ),
        peak=build_peak(stages, features),
    )


def build_peak(stages: Stages, features: Features) -> Peak | None:
    """The values alive at the peak; None where that cannot be known."""
    peak = stages.peak
    if peak is None:
        return None
    moment = peak.time
    # Until the index was printed, a value was said to weigh what its whole instruction weighs.
    by_index = features.peak_index is not False
    size_of = cache(unpadded_size)
    alive = [
        (size_of(value.shape if by_index else value.instruction.shape), value)
        for value, (start, end) in stages.live_ranges.range_of.items()
        if start <= moment <= end
    ]
    if features.peak_cumulative is not False:
        alive.sort(key=lambda entry: (-entry[0], entry[1].instruction.name, entry[1].index))
    buffers = []
    total = 0
    for size, value in alive:
        total += size
        buffers.append(
            PeakBuffer(
                instruction=value.instruction.name, size=size, index=value.index, cumulative=total
            )
        )
    trace = _build_stack_trace(stages, alive) if features.stack_trace is not False else None
    return Peak(moment=moment, buffers=tuple(buffers), stack_trace=trace)


def _build_stack_trace(stages: Stages, alive: list[tuple[int, HloValue]]) -> StackTrace:
    total = sum(size for size, _ in alive)
    nodes = [
        TraceNode(
            name=entry.name,
            depth=entry.depth,
            percent=100.0 * entry.total / total,
            total=entry.total,
            current=entry.own,
            remaining=entry.remaining,
        )
        for entry in break_down(alive, stages.call_graph)
    ]
    return StackTrace(total=total, nodes=tuple(nodes))


# `*-memory-usage-report.txt`


def build_report(stages: Stages, features: Features) -> UsageReport | None:
    """The report in the shape a version writes; None where it writes none."""
    shapes = features.report
    if shapes is None or "by-space" in shapes:
        return _build_report_by_space(stages.assignment.allocations)
    if "by-allocation" in shapes:
        return _build_report_by_allocation(stages)
    return None


def _build_report_by_space(allocations: list[BufferAllocation]) -> SpaceReport:
    by_color: dict[Color, list[BufferAllocation]] = {}
    for allocation in allocations_by_size(allocations):
        by_color.setdefault(allocation.color, []).append(allocation)
    spaces = []
    for color, members in sorted(by_color.items()):
        sizes = [allocation.size for allocation in members]
        shown, _ = count_shown(sizes)
        spaces.append(
            MemorySpace(
                name=xla_space_name(color),
                color=color,
                total_bytes=sum(sizes),
                tables=tuple([_build_table(allocation) for allocation in members[:shown]]),
            )
        )
    return SpaceReport(spaces=tuple(spaces))


def _build_report_by_allocation(stages: Stages) -> AllocationReport:
    ordered = allocations_by_size(stages.assignment.allocations)
    sizes = [allocation.size for allocation in ordered]
    shown, is_cut = count_shown(sizes)
    total = sum(sizes)
    reported = [_report_allocation(build_allocation(stages, allocation)) for allocation in ordered]
    rows = []
    cumulative = 0
    for size, allocation in zip(sizes[:shown], reported, strict=False):
        cumulative += size
        rows.append(
            AllocationRow(
                cumulative=human_bytes(cumulative),
                percent=_percent(cumulative, total),
                remaining=human_bytes(total - cumulative),
                allocation=allocation,
            )
        )
    details = [
        AllocationDetail(
            allocation=record,
            table=None if len(allocation.slices) == 1 else _build_table(allocation),
        )
        for record, allocation in zip(reported, ordered, strict=True)
    ]
    return AllocationReport(
        total_bytes=total,
        rows=tuple(rows),
        rest=len(ordered) - shown if is_cut else None,
        details=tuple(details),
    )


def _report_allocation(allocation: Allocation) -> ReportedAllocation:
    return ReportedAllocation(
        index=allocation.index,
        size=human_bytes(allocation.size),
        color=allocation.color,
        parameter=allocation.parameter,
        output_shape=allocation.output_shape,
        is_constant=allocation.is_constant,
        is_thread_local=allocation.is_thread_local,
        maybe_live_out=allocation.maybe_live_out,
        is_preallocated_temp=allocation.is_preallocated_temp,
    )


def _build_table(allocation: BufferAllocation) -> UsageTable:
    places = places_by_size(allocation)
    shown, is_cut = count_shown([place.size for place in places])
    total = sum(place.size for place in places)
    rows = []
    cumulative = 0
    for offset, size, values in places[:shown]:
        cumulative += size
        rows.append(
            UsageRow(
                cumulative=human_bytes(cumulative),
                percent=_percent(cumulative, total),
                size=human_bytes(size),
                offset=offset,
                value_count=len(values),
                shapes=_count_shapes(values),
            )
        )
    return UsageTable(rows=tuple(rows), rest=len(places) - shown if is_cut else None)


def _count_shapes(values: list[HloValue]) -> tuple[ShapeCount, ...]:
    counts: dict[str, int] = {}
    for value in values:
        shape = value.shape.text_without_layout
        counts[shape] = counts.get(shape, 0) + 1
    ordered = sorted((count, shape) for shape, count in counts.items())
    return tuple([ShapeCount(shape=shape, count=count) for count, shape in ordered])


def _percent(part: int, total: int) -> int | str:
    """As `%3.0f` prints it; 0 of 0 is not a number, and C++ finds it negative."""
    return int(f"{100.0 * part / total:.0f}") if total else "-nan"
