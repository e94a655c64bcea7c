"""The temporaries of a space packed again, with some buffers smaller or gone for a while.

In: a `MemoryView` and a space. Out: how much less its temporaries need at once when some of them
are changed. Parameters and results stay as they are. Holes between buffers are not packed again.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.assign.footprint import footprint
from hlomem.report.data.timeline import bytes_over_time
from hlomem.report.data.uses import iter_uses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.base.quantities import ValueId
    from hlomem.report.data.memory import Buffer, MemoryView

    Changes = Mapping[ValueId, Sequence[Buffer]]
    """By a buffer's id, what stands in its place: nothing, smaller ones, or shorter-lived ones."""
    Extra = tuple[int, int, int]
    """First step, last step and bytes of something new."""


class Replay:
    """The temporaries of one memory space."""

    def __init__(self, memory: MemoryView, color: int) -> None:
        self._memory = memory
        allocations = memory.temporary_allocations(color)
        self._allocations = [allocation.index for allocation in allocations]
        self._reserved = footprint(allocations, color)

    @cached_property
    def buffers(self) -> list[Buffer]:
        """All temporaries of the space."""
        return [buffer for index in self._allocations for buffer in self._memory.buffers_in(index)]

    @cached_property
    def most(self) -> int:
        """The most that is alive at once."""
        return max(self._sizes({}), default=0)

    @property
    def holes(self) -> int:
        """The bytes reserved for temporaries beyond the most that is alive at once."""
        return self._reserved - self.most

    def saved(self, changes: Changes, extras: Iterable[Extra] = ()) -> int:
        """How much less is alive at most with these changes; negative where it is more."""
        sizes = self._sizes(changes)
        for first, last, size in extras:
            for step in range(max(0, first), min(last + 1, len(sizes))):
                sizes[step] += size
        return self.most - max(sizes, default=0)

    def _sizes(self, changes: Changes) -> list[int]:
        uses = [
            usage
            for index in self._allocations
            for usage in iter_uses(
                [
                    changed
                    for buffer in self._memory.buffers_in(index)
                    for changed in changes.get(buffer.id, (buffer,))
                ]
            )
        ]
        return bytes_over_time(uses, self._memory.steps + 1)


def shrunk(buffer: Buffer, size: int) -> Buffer:
    """A buffer with fewer bytes, at the same place."""
    return replace(buffer, size=min(size, buffer.size))
