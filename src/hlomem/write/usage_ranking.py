"""Allocations and the places in them, the largest first.

Mirrors `BufferAssignment::MemoryUsageReport` and `BufferAllocation::MemoryUsageReport` of
`service/buffer_assignment.cc` as far as they decide what is listed and in which order.
"""

from __future__ import annotations

from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING

from hlomem.base.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.analysis.values import HloValue
    from hlomem.assign.allocation import BufferAllocation
    from hlomem.base.quantities import ByteCount, Offset

_SHOWN_AT_LEAST = 50  # `more_than_k`
_NEGLIGIBLE = 0.05000000074505806  # `percentile`: 0.05 as a 32-bit float


_FLOAT = Struct("f")
_by_id = attrgetter("id")


class Place(NamedTuple):
    """An offset of an allocation and the values that begin there."""

    offset: Offset
    size: ByteCount
    """Bytes of the largest of them."""
    values: list[HloValue]


def places_by_size(allocation: BufferAllocation) -> list[Place]:
    """The places of an allocation, the largest first, of equal ones by their last value's id."""
    values_at: dict[Offset, list[HloValue]] = {}
    size_at: dict[Offset, ByteCount] = {}
    slices = allocation.slices
    for value in sorted(slices, key=_by_id):
        offset, size = slices[value]
        if offset in values_at:
            values_at[offset].append(value)
            if size > size_at[offset]:
                size_at[offset] = size
        else:
            values_at[offset], size_at[offset] = [value], size
    order = sorted(values_at, key=lambda offset: (-size_at[offset], values_at[offset][-1].id))
    return [Place(offset, size_at[offset], values_at[offset]) for offset in order]


def allocations_by_size(allocations: Sequence[BufferAllocation]) -> list[BufferAllocation]:
    """Allocations, the largest first, of equal ones by index."""
    return sorted(allocations, key=lambda allocation: (-allocation.size, allocation.index))


def count_shown(sizes: Sequence[int]) -> tuple[int, bool]:
    """The number of entries shown, and whether the rest is left out as too small to matter."""
    total = sum(sizes)
    negligible = _in_single_precision(_in_single_precision(total) * _NEGLIGIBLE)
    cumulative = 0
    for count, size in enumerate(sizes, 1):
        cumulative += size
        if count > _SHOWN_AT_LEAST and total - cumulative < negligible:
            return count, True
    return len(sizes), False


def _in_single_precision(number: float) -> float:
    """A number as a 32-bit float holds it."""
    rounded: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    return rounded
