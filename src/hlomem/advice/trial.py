"""Two ways to evaluate a change: plan the changed program, or replay the temporaries.

XLA would also fuse and schedule differently, so that each rule gives a `Spread`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.assign.footprint import footprint
from hlomem.report.data.occupancy import iter_uses
from hlomem.report.data.timeline import bytes_over_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.advice.case import Case
    from hlomem.base.quantities import ValueId
    from hlomem.hlo.ir import HloModule
    from hlomem.pipeline import Stages
    from hlomem.report.data.advice import Advice, Confidence
    from hlomem.report.data.memory import Buffer, MemoryView

    Changes = Mapping[ValueId, Sequence[Buffer]]

    """The buffers that replace a buffer, by its id: none, smaller or shorter-lived ones."""

    Extra = tuple[int, int, int]

    """First step, last step and bytes of a new value."""


class Spread(NamedTuple):
    """The range of the actual saving, as fractions of the planned one."""

    least: float
    most: float


EXACT = Spread(1.0, 1.0)


class Trial(NamedTuple):
    varied: HloModule | Stages
    advice: Advice
    spread: Spread = EXACT

    def evaluate(self, subject: Case) -> Advice:
        saved = subject.saved_by(self.varied)
        return replace(
            self.advice,
            least=round(saved * self.spread.least),
            most=round(saved * self.spread.most),
            confidence=self._confidence(subject),
        )

    def _confidence(self, subject: Case) -> Confidence:
        if not subject.is_xlas:
            return "low"
        is_high = self.advice.confidence == "high"
        return "medium" if subject.is_rebuilt and is_high else self.advice.confidence


class Replay:
    def __init__(self, memory: MemoryView, color: int) -> None:
        self._memory = memory
        allocations = memory.temporary_allocations(color)
        self._allocations = [allocation.index for allocation in allocations]
        self._reserved = footprint(allocations, color)

    @cached_property
    def buffers(self) -> list[Buffer]:
        return [buffer for index in self._allocations for buffer in self._memory.buffers_in(index)]

    @cached_property
    def most(self) -> int:
        """The peak live bytes."""
        return max(self._sizes({}), default=0)

    @property
    def holes(self) -> int:
        return self._reserved - self.most

    def without(self, buffers: Iterable[Buffer]) -> dict[ValueId, tuple[Buffer, ...]]:
        """The changes that remove buffers and all values that share their storage."""
        memory = self._memory
        families = [memory.family(memory.joined.placed_by_id[buffer.id]) for buffer in buffers]
        return dict.fromkeys((placed.id for family in families for placed in family), ())

    def saved(self, changes: Changes, extras: Iterable[Extra] = ()) -> int:
        """The reduction of the peak by these changes; negative if it grows."""
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
    """A buffer with fewer bytes, at the same offset."""
    return replace(buffer, size=min(size, buffer.size))
