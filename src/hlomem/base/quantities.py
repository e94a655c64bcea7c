"""Kinds of whole numbers: an offset is not a size, a step is not an index.

The type checker keeps them apart; at run time each is a plain `int`, and arithmetic on them gives a
plain `int` that has to be named again. Two conventions go with them:

- **Steps** are positions in the flattened schedule. A live range [start, end] includes both ends,
  as XLA's does (`HloLiveRange::TimeBound`): a value whose range ends at the step at which another's
  begins meets it there, and shares memory with it only if the instruction writes in place.
- **Bytes** are half open: a slice is [offset, offset + size), and two that touch do not meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NewType, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

ValueId = NewType("ValueId", int)
"""XLA's number of a value, in the order of definition; numbers of dropped phis are missing."""
BufferId = NewType("BufferId", int)
"""XLA's number of a buffer, in the order of its first values."""
AllocationIndex = NewType("AllocationIndex", int)
"""The position of an allocation in the final list."""
ParameterNumber = NewType("ParameterNumber", int)
"""The position of an argument of the entry computation."""
Color = NewType("Color", int)
"""A memory space; 0 is the main one."""
Offset = NewType("Offset", int)
"""The first byte of a slice, counted from the beginning of its allocation."""
ByteCount = NewType("ByteCount", int)
"""A number of bytes."""
Step = NewType("Step", int)
"""A position in the flattened schedule (XLA's logical time)."""

NEVER = Step(-1)
"""Before every step."""
MAIN_MEMORY = Color(0)
BEGINNING = Offset(0)
"""Of an allocation."""


def steps(count: int) -> Sequence[Step]:
    """The steps of a schedule of `count` instructions."""
    return cast("Sequence[Step]", range(count))
