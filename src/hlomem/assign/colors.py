"""Values → memory spaces.

Mirrors `BufferAssigner::DefaultColorer` of `service/buffer_assignment.h`: a value lies in the
memory space its layout names, and everything that shares its buffer with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.analysis.aliasing import Aliasing
    from hlomem.analysis.values import HloValue

ColorOf = dict["HloValue", int]


def color_values(aliasing: Aliasing, preset: Mapping[HloValue, int] | None = None) -> ColorOf:
    """The memory space of every value."""
    color_of: ColorOf = {}
    for buffer in aliasing.buffers:
        for value in buffer.values:
            color_of[value] = value.shape.memory_space
    if preset:
        color_of.update(preset)
    return color_of
