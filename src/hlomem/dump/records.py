"""Plain records: what XLA's memory dumps say, field by field, and no more.

Readers fill them from text, the planner fills them from an assignment, writers print them and
every report looks at them. They know nothing of HLO: shapes and instructions stay the text XLA
printed, which `hlomem.hlo` parses for whoever asks. Records are immutable; change one with
`msgspec.structs.replace`.

Intervals are as `hlomem.base.quantities` says: a live range includes both its ends; a byte range
[offset, offset + size) does not include its last. All sizes are bytes unless they are text, which
is XLA's rounded form ("1.5KiB"). Numbers that name a thing or a place are of a kind of their own;
sums and counts are plain.
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
"""The way into a tuple shape: () is the whole, (1, 0) the first part of its second part."""


class Record(Struct, frozen=True, gc=False):
    """Base of all records: compared by value, cheap to make, free of cycles."""


class Value(Record, frozen=True, kw_only=True):
    """The name of an HLO value: `<12 while.5{1} (phi) @0>` (XLA: HloValue::ToShortString)."""

    id: ValueId
    name: str
    """The instruction that defines it."""
    index: ShapeIndex | None = None
    """Its index in the instruction's result; None when the result is not a tuple."""
    is_phi: bool = False
    """Made where several values meet: a loop's carry, a conditional's result."""
    color: Color | None = MAIN_MEMORY
    """Its memory space; None when colours were not assigned yet."""


class AssignedValue(Value, frozen=True, kw_only=True):
    """A value and its place in an allocation."""

    size: ByteCount
    offset: Offset
    shape: str
    """With layout, as XLA prints it."""


class Parameter(Record, frozen=True, kw_only=True):
    """The entry parameter an allocation holds."""

    number: ParameterNumber
    shape: str
    """Without layout."""
    index: ShapeIndex


class UnknownAttribute(Record, frozen=True, kw_only=True):
    """An attribute no known XLA prints, kept as it stood."""

    text: str
    position: int
    """How many known attributes stand before it."""


class AllocationAttributes(Record, frozen=True, kw_only=True):
    """Everything an allocation's header says beside its number and size."""

    color: Color = MAIN_MEMORY
    page: int | None = None
    parameter: Parameter | None = None
    output_shape: str | None = None
    """Shape of the entry computation's result, where this allocation holds its top level."""
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
    """Values of another colour that were put here; None when the dump has no such list."""


class Assignment(Record, frozen=True, kw_only=True):
    """`BufferAssignment:` — every allocation with the values in it."""

    allocations: tuple[Allocation, ...] = ()


class Position(Record, frozen=True):
    """A place where a value appears: an instruction, and where in its result."""

    instruction: str
    index: ShapeIndex | None = None


class Use(Record, frozen=True):
    """An operand that reads a value."""

    instruction: str
    operand: int
    index: ShapeIndex | None = None


class UsedValue(Value, frozen=True, kw_only=True):
    """A value with the places it appears at and the operands that read it."""

    positions: tuple[Position, ...] = ()
    uses: tuple[Use, ...] | None = ()
    """None when XLA had not computed them."""
    instruction: str = ""
    """The defining instruction as this XLA prints it."""


class Values(Record, frozen=True, kw_only=True):
    """`Total bytes used` and `Used values`."""

    total_bytes: int
    values: tuple[UsedValue, ...] = ()


class LiveRange(Record, frozen=True, kw_only=True):
    """The schedule positions at which a value is alive; both ends belong to it."""

    instruction: str
    index: ShapeIndex
    start: Step
    end: Step

    def is_live_at(self, moment: Step) -> bool:
        """Whether the value is alive at a schedule position."""
        return self.start <= moment <= self.end


class PeakBuffer(Record, frozen=True, kw_only=True):
    """One buffer alive at the peak, in unpadded bytes."""

    instruction: str
    size: int
    index: ShapeIndex | None = None
    cumulative: int | None = None


class TraceNode(Record, frozen=True, kw_only=True):
    """A node of the stack-trace breakdown; `current` is its own, `total` with what is below."""

    name: str
    depth: int
    """0 for a root; a node's children are the deeper ones that follow it."""
    percent: float
    total: int
    current: int
    remaining: int


class StackTrace(Record, frozen=True, kw_only=True):
    """`Stack trace breakdown for peak usage`: a tree, depth first."""

    total: int
    nodes: tuple[TraceNode, ...] = ()


class Peak(Record, frozen=True, kw_only=True):
    """The moment at which most bytes are alive, by XLA's own account."""

    moment: Step
    buffers: tuple[PeakBuffer, ...] = ()
    stack_trace: StackTrace | None = None


class LiveRanges(Record, frozen=True, kw_only=True):
    """`HloLiveRange`: the flattened schedule, and when each value is alive on it."""

    end: int
    """One past the last moment ("max")."""
    sequence: tuple[str, ...] = ()
    ranges: tuple[LiveRange, ...] = ()
    peak: Peak | None = None
    """None when an unbounded shape kept XLA from computing it."""


class ShapeCount(Record, frozen=True, kw_only=True):
    """How many values of a row have a shape."""

    shape: str
    count: int = 1


class UsageRow(Record, frozen=True, kw_only=True):
    """The values at one offset of an allocation."""

    cumulative: str
    percent: int | str
    """Of the values listed; "-nan" when they have no bytes."""
    size: str
    offset: Offset
    value_count: int
    shapes: tuple[ShapeCount, ...] = ()


class UsageTable(Record, frozen=True, kw_only=True):
    """The values of one allocation, by offset, largest first."""

    rows: tuple[UsageRow, ...] = ()
    rest: int | None = None
    """How many small values XLA left out."""
    rest_percent: int = 5


class ReportedAllocation(AllocationAttributes, frozen=True, kw_only=True):
    """An allocation's header in a usage report, its size rounded."""

    index: AllocationIndex
    size: str


class AllocationRow(Record, frozen=True, kw_only=True):
    """One allocation in the list sorted by size."""

    cumulative: str
    percent: int | str
    remaining: str
    allocation: ReportedAllocation


class AllocationDetail(Record, frozen=True, kw_only=True):
    """One allocation with its table of values (single values have none)."""

    allocation: ReportedAllocation
    table: UsageTable | None = None


class AllocationReport(Record, frozen=True, kw_only=True):
    """memory-usage-report.txt up to jaxlib 0.9.1: allocations sorted by size."""

    total_bytes: int
    rows: tuple[AllocationRow, ...] = ()
    rest: int | None = None
    rest_percent: int = 5
    details: tuple[AllocationDetail, ...] = ()


class MemorySpace(Record, frozen=True, kw_only=True):
    """The allocations of one memory space."""

    name: str
    color: Color
    total_bytes: int
    tables: tuple[UsageTable, ...] = ()


class SpaceReport(Record, frozen=True, kw_only=True):
    """memory-usage-report.txt from jaxlib 0.9.2 on: tables grouped by memory space."""

    spaces: tuple[MemorySpace, ...] = ()


UsageReport: TypeAlias = AllocationReport | SpaceReport
