"""Values placed before buffer assignment, by memory-space assignment.

On TPU a pass moves values into fast memory and fixes their offsets there; buffer assignment takes
them over (`PresetAssignments` of `service/memory_space_assignment/memory_space_assignment.h`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.assign.allocation import OffsetSize
    from hlomem.base.quantities import ByteCount, Color
    from hlomem.hlo.shape import ShapeIndex


class Preset(Struct, frozen=True):
    """Offsets that are given."""

    size_of_color: Mapping[Color, ByteCount]
    """Bytes of the allocation of each color that has one."""
    place_of: Mapping[tuple[str, ShapeIndex], OffsetSize]
    """The slices of values in the allocation of their color, by instruction and part."""


NO_PRESET = Preset({}, {})
