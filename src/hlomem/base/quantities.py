"""Integer types: an offset is not a size, a step is not an index.

Distinct to the type checker, plain `int`s at run time. Their intervals:

- **Steps**: a live range [start, end] includes both ends, as XLA's `HloLiveRange::TimeBound`. Two
  values whose ranges meet at a step share memory only if the instruction writes in place.
- **Bytes**: a slice [offset, offset + size) is half-open; adjacent slices do not overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NewType, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

ValueId = NewType("ValueId", int)
"""XLA's id of a value, in definition order; ids of dropped phis are missing."""
BufferId = NewType("BufferId", int)
"""XLA's id of a buffer, in the order of first values."""
AllocationIndex = NewType("AllocationIndex", int)
"""The index of an allocation in the final list."""
ParameterNumber = NewType("ParameterNumber", int)
"""The index of an argument of the entry computation."""
Color = NewType("Color", int)
"""A memory space; 0 is the main one."""
Offset = NewType("Offset", int)
"""The first byte of a slice, relative to its allocation."""
ByteCount = NewType("ByteCount", int)
Step = NewType("Step", int)
"""A position in the flattened schedule (XLA's logical time)."""

NEVER = Step(-1)
"""Before every step."""
MAIN_MEMORY = Color(0)
BEGINNING = Offset(0)


def steps(count: int) -> Sequence[Step]:
    """The steps of a schedule of `count` instructions."""
    return cast("Sequence[Step]", range(count))
