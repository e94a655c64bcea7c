"""Immutable records of XLA's memory dumps, field by field.

Shapes and instructions are XLA's text. Intervals and integer types are those of
`hlomem.base.quantities`; sizes are bytes, or XLA's rounded text ("1.5KiB").
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from hlomem.base.quantities import (
    MAIN_MEMORY,
    AllocationIndex,
    ByteCount,
    Color,
    Offset,
    ParameterNumber,
    Step,
    ValueId,
)

ShapeIndex: TypeAlias = tuple[int, ...]
"""An index into a tuple shape: () is the whole, (1, 0) the first part of its second part."""


class Record(Struct, frozen=True, gc=False):
    """Base of all records, which have no cycles."""


class Value(Record, frozen=True, kw_only=True):
    """The name of an HLO value: `<12 while.5{1} (phi) @0>` (XLA: HloValue::ToShortString)."""

    id: ValueId
    name: str
    """The defining instruction."""
    index: ShapeIndex | None = None
    """The index in the instruction's result; None if the result is not a tuple."""
    is_phi: bool = False
    """Whether it merges several values: a loop's carry, a conditional's result."""
    color: Color | None = MAIN_MEMORY
    """The memory space; None before colours were assigned."""


class AssignedValue(Value, frozen=True, kw_only=True):
    size: ByteCount
    offset: Offset
    shape: str
    """With layout."""


class Parameter(Record, frozen=True, kw_only=True):
    number: ParameterNumber
    shape: str
    """Without layout."""
    index: ShapeIndex


class UnknownAttribute(Record, frozen=True, kw_only=True):
    text: str
    position: int
    """The number of known attributes before it."""


class AllocationAttributes(Record, frozen=True, kw_only=True):
    """An allocation's header after its number and size."""

    color: Color = MAIN_MEMORY
    page: int | None = None
    parameter: Parameter | None = None
    output_shape: str | None = None
    """Shape of the entry computation's result, if this allocation holds its top level."""
    is_constant: bool = False
    is_thread_local: bool = False
    maybe_live_out: bool = False
    is_preallocated_temp: bool = False
    unknown: tuple[UnknownAttribute, ...] = ()


class Allocation(AllocationAttributes, frozen=True, kw_only=True):
    """One contiguous piece of memory (XLA: BufferAllocation)."""

    index: AllocationIndex
    size: ByteCount
    values: tuple[AssignedValue, ...] = ()
    reused_across_colors: tuple[Value, ...] | None = None
    """Values of other colours in it; None if the dump has no such list."""


class Assignment(Record, frozen=True, kw_only=True):
    """`BufferAssignment:`"""

    allocations: tuple[Allocation, ...] = ()


class Position(Record, frozen=True):
    """An instruction's result, or a part of it, that holds a value."""

    instruction: str
    index: ShapeIndex | None = None


class Use(Record, frozen=True):
    """An operand that reads a value."""

    instruction: str
    operand: int
    index: ShapeIndex | None = None


class UsedValue(Value, frozen=True, kw_only=True):
    positions: tuple[Position, ...] = ()
    uses: tuple[Use, ...] | None = ()
    """None if XLA had not computed them."""
    instruction: str = ""


class Values(Record, frozen=True, kw_only=True):
    """`Total bytes used` and `Used values`."""

    total_bytes: int
    values: tuple[UsedValue, ...] = ()


class LiveRange(Record, frozen=True, kw_only=True):
    """The steps at which a value is live, both ends included."""

    instruction: str
    index: ShapeIndex
    start: Step
    end: Step

    def is_live_at(self, moment: Step) -> bool:
        return self.start <= moment <= self.end


class PeakBuffer(Record, frozen=True, kw_only=True):
    """One buffer that is live at the peak, in unpadded bytes."""

    instruction: str
    size: int
    index: ShapeIndex | None = None
    cumulative: int | None = None


class TraceNode(Record, frozen=True, kw_only=True):
    """A node of the stack-trace breakdown; `current` is its own, `total` includes its children."""

    name: str
    depth: int
    """0 for a root; a node's children follow it."""
    percent: float
    total: int
    current: int
    remaining: int


class StackTrace(Record, frozen=True, kw_only=True):
    """`Stack trace breakdown for peak usage`: a tree, depth first."""

    total: int
    nodes: tuple[TraceNode, ...] = ()


class Peak(Record, frozen=True, kw_only=True):
    """The step with the most live bytes, as XLA counts."""

    moment: Step
    buffers: tuple[PeakBuffer, ...] = ()
    stack_trace: StackTrace | None = None


class LiveRanges(Record, frozen=True, kw_only=True):
    """`HloLiveRange`: the flattened schedule and the live ranges on it."""

    end: int
    """One past the last step ("max")."""
    sequence: tuple[str, ...] = ()
    ranges: tuple[LiveRange, ...] = ()
    peak: Peak | None = None
    """None if a shape is unbounded."""


class ShapeCount(Record, frozen=True, kw_only=True):
    shape: str
    count: int = 1


class UsageRow(Record, frozen=True, kw_only=True):
    """The values at one offset of an allocation."""

    cumulative: str
    percent: int | str
    """Of the listed values; "-nan" if they have no bytes."""
    size: str
    offset: Offset
    value_count: int
    shapes: tuple[ShapeCount, ...] = ()


class UsageTable(Record, frozen=True, kw_only=True):
    """The values of one allocation, by offset, largest first."""

    rows: tuple[UsageRow, ...] = ()
    rest: int | None = None
    """The number of small values XLA left out."""
    rest_percent: int = 5


class ReportedAllocation(AllocationAttributes, frozen=True, kw_only=True):
    """An allocation's header in a usage report, its size rounded."""

    index: AllocationIndex
    size: str


class AllocationRow(Record, frozen=True, kw_only=True):
    cumulative: str
    percent: int | str
    remaining: str
    allocation: ReportedAllocation


class AllocationDetail(Record, frozen=True, kw_only=True):
    """One allocation with its table, if it holds several values."""

    allocation: ReportedAllocation
    table: UsageTable | None = None


class AllocationReport(Record, frozen=True, kw_only=True):
    """`memory-usage-report.txt` up to jaxlib 0.9.1: allocations sorted by size."""

    total_bytes: int
    rows: tuple[AllocationRow, ...] = ()
    rest: int | None = None
    rest_percent: int = 5
    details: tuple[AllocationDetail, ...] = ()


class MemorySpace(Record, frozen=True, kw_only=True):
    name: str
    color: Color
    total_bytes: int
    tables: tuple[UsageTable, ...] = ()


class SpaceReport(Record, frozen=True, kw_only=True):
    """`memory-usage-report.txt` since jaxlib 0.9.2: tables grouped by memory space."""

    spaces: tuple[MemorySpace, ...] = ()


UsageReport: TypeAlias = AllocationReport | SpaceReport
