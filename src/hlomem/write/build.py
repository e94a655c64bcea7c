"""A plan → the records of XLA's four files.

Mirrors the `ToString` functions of `service/buffer_assignment.cc`, `service/hlo_value.cc` and
`hlo/utils/hlo_live_range.cc`, and `MemoryUsageReport` of `BufferAssignment` and `BufferAllocation`.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING

from hlomem.dump.grammar import human_bytes
from hlomem.dump.records import (
    Allocation,
    AllocationAttributes,
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
from hlomem.write.stack_trace import build_stack_trace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from hlomem.analysis.values import HloValue, UseFinder
    from hlomem.assign.allocation import BufferAllocation, BufferAssignment
    from hlomem.assign.colors import ColorOf
    from hlomem.base.quantities import ByteCount, Color, Offset
    from hlomem.dump.eras import Features
    from hlomem.dump.parts import Contents
    from hlomem.dump.records import UsageReport
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.pipeline import Stages

_SHOWN_AT_LEAST = 50  # `more_than_k`
_NEGLIGIBLE = 0.05000000074505806  # `percentile`: 0.05 as a 32-bit float
_FLOAT = Struct("f")
_by_id = attrgetter("id")


def build_contents(stages: Stages, features: Features) -> Contents:
    from hlomem.dump.parts import Contents  # noqa: PLC0415 - not needed for texts

    stages.check_written()
    return Contents(
        build_assignment(stages),
        build_values(stages, features),
        build_live_ranges(stages, features),
        build_report(stages, features),
    )


# `*-buffer-assignment.txt`


def build_assignment(stages: Stages) -> Assignment:
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
    entry = stages.module.entry
    parameter, output_shape = None, None
    if allocation.parameter is not None:
        number, index, _ = allocation.parameter
        shape = entry.parameters[number].shape.subshape(index)
        parameter = Parameter(number=number, shape=shape.text_without_layout, index=index)
    if _holds_result(allocation, entry.root):
        output_shape = entry.root.shape.text_without_layout
    return Allocation(
        index=allocation.index,
        size=allocation.size,
        color=allocation.color,
        page=0,
        parameter=parameter,
        output_shape=output_shape,
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
    slices = allocation.slices
    return slices if len(slices) == 1 else sorted(slices, key=_by_id)


def _holds_result(allocation: BufferAllocation, root: HloInstruction) -> bool:
    """Whether an allocation holds the top level of the result (`GetOutputInstruction`)."""
    return allocation.maybe_live_out and any(
        instruction is root and not index
        for value in allocation.slices
        for instruction, index in value.positions
    )


# `*-buffer-assignment-values.txt`


def build_values(stages: Stages, features: Features) -> Values:
    """The allocated values with their positions and uses."""
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
    style = TextStyle(
        operand_shapes=bool(features.operand_shapes),
        async_sugar=True,
        proto_order=features.pages is not False,
    )
    return InstructionTexts(module, style)


def placed_values(assignment: BufferAssignment) -> list[HloValue]:
    """The allocated values, in the order of the dump."""
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
    """The values that are live at the peak; None if a size is unknown."""
    peak = stages.peak
    if peak is None:
        return None
    moment = peak.time
    # Before the index was printed, a value counted the size of its whole instruction.
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
    trace = None
    if features.stack_trace is not False:
        trace = build_stack_trace(alive, stages.call_graph)
    return Peak(moment=moment, buffers=tuple(buffers), stack_trace=trace)


# `*-memory-usage-report.txt`


def build_report(stages: Stages, features: Features) -> UsageReport | None:
    """The report in a version's shape; None if it writes none."""
    shapes = features.report
    if shapes is None or "by-space" in shapes:
        return _build_report_by_space(stages.assignment.allocations)
    if "by-allocation" in shapes:
        return _build_report_by_allocation(stages)
    return None


def _build_report_by_space(allocations: list[BufferAllocation]) -> SpaceReport:
    by_color: dict[Color, list[BufferAllocation]] = {}
    for allocation in _by_size(allocations):
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
    ordered = _by_size(stages.assignment.allocations)
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
    fields = {name: getattr(allocation, name) for name in AllocationAttributes.__struct_fields__}
    size = human_bytes(allocation.size)
    return ReportedAllocation(index=allocation.index, size=size, **fields | {"page": None})


def _by_size(allocations: Sequence[BufferAllocation]) -> list[BufferAllocation]:
    return sorted(allocations, key=lambda allocation: (-allocation.size, allocation.index))


def count_shown(sizes: Sequence[int]) -> tuple[int, bool]:
    """The number of entries shown, and whether the rest is omitted as negligible."""
    total = sum(sizes)
    negligible = _in_single_precision(_in_single_precision(total) * _NEGLIGIBLE)
    cumulative = 0
    for count, size in enumerate(sizes, 1):
        cumulative += size
        if count > _SHOWN_AT_LEAST and total - cumulative < negligible:
            return count, True
    return len(sizes), False


def _in_single_precision(number: float) -> float:
    rounded: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    return rounded


def _build_table(allocation: BufferAllocation) -> UsageTable:
    """The values by offset, the largest first, then by the id of the last value there."""
    values_at: dict[Offset, list[HloValue]] = {}
    size_at: dict[Offset, ByteCount] = {}
    for value in sorted(allocation.slices, key=_by_id):
        offset, size = allocation.slices[value]
        values_at.setdefault(offset, []).append(value)
        size_at[offset] = max(size, size_at.get(offset, size))
    offsets = sorted(values_at, key=lambda offset: (-size_at[offset], values_at[offset][-1].id))
    sizes = [size_at[offset] for offset in offsets]
    shown, is_cut = count_shown(sizes)
    total = sum(sizes)
    rows = []
    cumulative = 0
    for offset, size in zip(offsets[:shown], sizes, strict=False):
        cumulative += size
        values = values_at[offset]
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
    return UsageTable(rows=tuple(rows), rest=len(offsets) - shown if is_cut else None)


def _count_shapes(values: list[HloValue]) -> tuple[ShapeCount, ...]:
    counts: dict[str, int] = {}
    for value in values:
        shape = value.shape.text_without_layout
        counts[shape] = counts.get(shape, 0) + 1
    ordered = sorted((count, shape) for shape, count in counts.items())
    return tuple([ShapeCount(shape=shape, count=count) for count, shape in ordered])


def _percent(part: int, total: int) -> int | str:
    """Formatted as `%3.0f`; 0 of 0 is a negative NaN in C++."""
    return int(f"{100.0 * part / total:.0f}") if total else "-nan"
