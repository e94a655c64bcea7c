"""A change that is made in the program, planned, and compared with the plan of the program.

In: a module with the change, or the stages of its plan, and the advice without its bytes. Out: the
advice with them. What XLA does with a changed program is not only another plan: it fuses and
schedules it anew. Each rule says which share of the saving is certain and which is possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

if TYPE_CHECKING:
    from hlomem.advice.case import Subject
    from hlomem.hlo.ir import HloModule
    from hlomem.pipeline import Stages
    from hlomem.report.data.advice import Advice, Confidence


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
