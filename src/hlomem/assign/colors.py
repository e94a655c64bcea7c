"""Values → memory spaces.

Mirrors `BufferAssigner::DefaultColorer` of `service/buffer_assignment.h`: a value lies in the
memory space its layout names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.analysis.aliasing import Aliasing
    from hlomem.analysis.values import HloValue
    from hlomem.base.quantities import Color

ColorOf = dict["HloValue", "Color"]


def color_values(aliasing: Aliasing) -> ColorOf:
    """The memory space of every value."""
    return {
        value: value.shape.memory_space for buffer in aliasing.buffers for value in buffer.values
    }
