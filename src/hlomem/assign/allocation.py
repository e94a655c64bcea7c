"""The result: allocations and the slices of values. Mirrors `service/buffer_assignment.h`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from hlomem.base.quantities import (
    BEGINNING,
    AllocationIndex,
    ByteCount,
    Color,
    Offset,
    ParameterNumber,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.shape import ShapeIndex


class OffsetSize(NamedTuple):
    """The bytes [offset, offset + size) of an allocation."""

    offset: Offset
    size: ByteCount


@lru_cache(maxsize=4096)
def whole(size: ByteCount) -> OffsetSize:
    """A whole allocation; most allocations share few sizes."""
    return OffsetSize(BEGINNING, size)


class EntryParameter(NamedTuple):
    """The part of an entry parameter that an allocation holds."""

    number: ParameterNumber
    shape_index: ShapeIndex
    is_aliased_with_output: bool


class BufferAllocation(Struct, eq=False):
    index: AllocationIndex
    size: ByteCount
    color: Color
    slices: dict[HloValue, OffsetSize] = field(default_factory=dict)
    """Values that are never live at the same time may overlap."""
    is_thread_local: bool = False
    is_tuple: bool = False
    is_constant: bool = False
    maybe_live_out: bool = False
    """Whether it may hold part of the entry computation's result."""
    parameter: EntryParameter | None = None

    @property
    def is_preallocated_temp(self) -> bool:
        """Whether it is temporary memory (`IsPreallocatedTempBuffer`)."""
        return not (
            self.parameter is not None
            or self.maybe_live_out
            or self.is_thread_local
            or self.is_constant
        )

    @property
    def is_readonly(self) -> bool:
        if self.is_constant:
            return True
        return self.parameter is not None and not self.parameter.is_aliased_with_output


class BufferAssignment(Struct, frozen=True, eq=False):
    allocations: list[BufferAllocation]
    """By index."""
    waiting: Sequence[HloBuffer] | None = None
    """The buffers that were left to heaps; None if unknown."""

    @property
    def total_bytes(self) -> ByteCount:
        return ByteCount(sum(allocation.size for allocation in self.allocations))
