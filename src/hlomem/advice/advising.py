"""The rules asked: what would make a program need less memory, and by how much.

In: a program, its memory and its planner. Out: advice, what saves most and is surest first. Where a
change can be made in the module (a donation, another layout), it is made and the edited module is
planned: the saving is the difference between two plans. What cannot be tried is counted: the
temporaries are replayed without what would go. Either way bytes are a range; `hlomem.advice.rules`
say what is behind it. A rule that fails is left out, and a note says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import HlomemError
from hlomem.report.data.advice import Advice, AdviceReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hlomem.advice.case import Subject
    from hlomem.advice.registry import Rule

_WORTH_SAYING = 0.01
"""Share of the memory below which nothing is advised."""
_WEIGHT = {"high": 1.0, "medium": 0.7, "low": 0.4}
"""The weight of a saved byte, by confidence."""


def advise_with(rules: Mapping[str, Rule], subject: Subject) -> AdviceReport:
    """The advice of some rules, ordered by bytes saved and confidence."""
    least = _WORTH_SAYING * subject.space.size
    advice = [
        piece
        for name, rule in rules.items()
        for piece in _ask(subject, name, rule)
        if piece.least > least
    ]
    advice.sort(key=lambda piece: (-piece.middle * _WEIGHT[piece.confidence], piece.title))
    return AdviceReport(
        name=subject.memory.dump.title,
        space=subject.space.name,
        size=subject.space.size,
        advice=tuple(advice),
        notes=tuple(subject.notes),
    )


def _ask(subject: Subject, name: str, rule: Rule) -> Iterator[Advice]:
    """The advice of one rule; a note where it fails, so that the others still speak."""
    try:
        yield from rule(subject)
    except HlomemError as error:
        subject.notes.append(f"`{name}` could not be tried: {error}")
    except Exception as error:  # noqa: BLE001 - one rule must not take the others with it
        problem = f"{type(error).__name__}: {error}"
        subject.notes.append(f"`{name}` was left out, by a bug of hlomem: {problem}")
