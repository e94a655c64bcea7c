"""Evaluates a change of the program by planning it.

`Trial` plans a changed module and compares it with the plan of the original; since XLA would also
fuse and schedule it differently, each rule gives a `Spread`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

if TYPE_CHECKING:
    from hlomem.advice.case import Case
    from hlomem.hlo.ir import HloModule
    from hlomem.pipeline import Stages
    from hlomem.report.data.advice import Advice, Confidence


class Spread(NamedTuple):
    """The range of the actual saving, as fractions of the planned one."""

    least: float
    most: float


EXACT = Spread(1.0, 1.0)


class Trial(NamedTuple):
    """A change of the program, before its saving is known."""

    varied: HloModule | Stages
    advice: Advice
    spread: Spread = EXACT

    def evaluate(self, subject: Case) -> Advice:
        """The advice with the bytes it saves."""
        saved = subject.saved_by(self.varied)
        return replace(
            self.advice,
            least=round(saved * self.spread.least),
            most=round(saved * self.spread.most),
            confidence=self._confidence(subject),
        )

    def _confidence(self, subject: Case) -> Confidence:
        """The confidence, lower if the program is not fully known."""
        if not subject.is_xlas:
            return "low"
        is_high = self.advice.confidence == "high"
        return "medium" if subject.is_rebuilt and is_high else self.advice.confidence
