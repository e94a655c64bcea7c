"""A change that is made in the program, planned, and compared with the plan of the program.

In: a module with the change, or the stages of its plan, and the advice without its bytes. Out: the
advice with them. What XLA does with a changed program is not only another plan: it fuses and
schedules it anew. Each rule says which share of the saving is certain and which is possible.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.report.data.occupancy import iter_uses
from hlomem.report.data.timeline import bytes_over_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.advice.case import Subject
    from hlomem.base.quantities import ValueId
    from hlomem.hlo.ir import HloModule
    from hlomem.pipeline import Stages
    from hlomem.report.data.advice import Advice, Confidence
    from hlomem.report.data.memory import Buffer, MemoryView

    Changes = Mapping[ValueId, Sequence[Buffer]]

    """By a buffer's id, what stands in its place: nothing, smaller ones, or shorter-lived ones."""

    Extra = tuple[int, int, int]

    """First step, last step and bytes of something new."""


class Spread(NamedTuple):
    """The range a planned saving may turn out to be in, as shares of it."""

    least: float
    most: float


EXACT = Spread(1.0, 1.0)


class Trial(NamedTuple):
    """A change that was made in the program, before its worth is known."""

    varied: HloModule | Stages
    advice: Advice
    spread: Spread = EXACT

    def judge(self, subject: Subject) -> Advice:
        """The advice with what it saves."""
        saved = subject.saved_by(self.varied)
        return replace(
            self.advice,
            least=round(saved * self.spread.least),
            most=round(saved * self.spread.most),
            confidence=self._confidence(subject),
        )

    def _confidence(self, subject: Subject) -> Confidence:
        """How sure it is, less so where not all is known about the program."""
        if not subject.is_xlas:
            return "low"
        is_high = self.advice.confidence == "high"
        return "medium" if subject.is_rebuilt and is_high else self.advice.confidence


class Replay:
    """The temporaries of one memory space."""

    def __init__(self, memory: MemoryView, color: int) -> None:
        self._memory = memory
        allocations = memory.temporary_allocations(color)
        self._allocations = [allocation.index for allocation in allocations]
        self._reserved = sum(allocation.size for allocation in allocations)

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
