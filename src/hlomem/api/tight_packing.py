"""A program's temporaries in the best packing found; only libtpu takes one (`link`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.api.pack import Buffer, pack
from hlomem.assign.packing import Packing as Heap
from hlomem.opt.orders.planned_orders import temporary_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.assign.packing import BufferInterval
    from hlomem.packer.buffers import Packing
    from hlomem.pipeline import Stages

_PROVEN = frozenset({"at the bound", "proven optimal"})
_EFFORT = 2_000
"""Steps of exact search for one heap; nearly all reach the bound without any."""


class TightHeap(NamedTuple):
    """The temporaries of an order in the best packing that was found."""

    size: int
    bound: int
    """Bytes that no packing of this order can do without."""
    is_proven: bool


def pack_tightly(stages: Stages) -> TightHeap:
    """Pack the temporaries of a program as tightly as can be found."""
    packings: list[Packing] = []

    def place(intervals: Sequence[BufferInterval], alignment: int) -> Heap:
        packings.append(_pack(intervals, alignment))
        return _as_heap(packings[-1], intervals)

    size = temporary_bytes(stages.repacked(place))
    slack = sum(packing.height - packing.lower_bound for packing in packings)
    is_proven = all(packing.status in _PROVEN for packing in packings)
    return TightHeap(size, size if is_proven else size - slack, is_proven)


def place_tightly(intervals: Sequence[BufferInterval], alignment: int) -> Heap:
    """The best packing found, for a planner that is given one instead of XLA's."""
    return _as_heap(_pack(intervals, alignment), intervals)


def _pack(intervals: Sequence[BufferInterval], alignment: int) -> Packing:
    return pack([_as_buffer(interval, alignment) for interval in intervals], effort=_EFFORT)


def _as_heap(packing: Packing, intervals: Sequence[BufferInterval]) -> Heap:
    offsets = {interval.id: packing.offset_of[interval.id] for interval in intervals}
    return Heap(offsets, packing.height)


def _as_buffer(interval: BufferInterval, alignment: int) -> Buffer:
    """A buffer whose lives do not include their ends."""
    more = tuple((start, end + 1) for start, end in interval.colocations)
    return Buffer(interval.id, interval.start, interval.end + 1, interval.size, alignment, more)
