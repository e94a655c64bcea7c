"""The peak of a plan: the moment at which most bytes are alive.

Mirrors `HloLiveRange::ComputePeakMemoryMoment`, which counts by its own rules: a value weighs what
the whole result of its instruction weighs, a tuple its table; and a value that ends at a moment
still counts when the next moment's values begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.named_tuples import NamedTuple
from hlomem.base.quantities import ByteCount, Step
from hlomem.hlo.padding import UnknownSizeError, unpadded_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.analysis.live_range import LiveRanges
    from hlomem.hlo.shape import Shape


class PeakMoment(NamedTuple):
    """The first moment at which most bytes are alive, and how many."""

    time: Step
    size: ByteCount


def find_peak(
    live_ranges: LiveRanges, shapes: Mapping[Shape, Shape] | None = None
) -> PeakMoment | None:
    """The peak of a program; None where a shape has no size.

    `shapes` are arrays that have other shapes than the module says, by those.
    """
    shapes = shapes or {}
    begun_at = [0] * (live_ranges.end + 2)  # bytes by time
    ended_before = [0] * (live_ranges.end + 2)
    size_of: dict[int, int] = {}  # by identity: nearly all shapes that are equal are the same
    for value, (start, end) in live_ranges.range_of.items():
        shape = value.instruction.shape
        size = size_of.get(id(shape))
        if size is None:
            try:
                size = size_of[id(shape)] = unpadded_size(shapes.get(shape, shape))
            except UnknownSizeError:
                return None
        begun_at[start] += size
        ended_before[end + 1] += size
    peak = live = most = 0
    for time, (begun, ended) in enumerate(zip(begun_at, ended_before, strict=True)):
        live += begun
        if live > most:
            most, peak = live, time
        live -= ended
    return PeakMoment(Step(peak), ByteCount(most))
