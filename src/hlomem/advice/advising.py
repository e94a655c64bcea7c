"""Asks the rules which changes would reduce a program's memory, and by how much.

A change that can be made in the module (a donation, another layout, another order) is made and
planned: the saving is the difference of two plans. Other advice is a possibility, without bytes;
`hlomem.jax.advise` compiles it. A rule that fails is skipped with a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.advice.rules.carry import advise_carry
from hlomem.advice.rules.checkpoint import advise_checkpoint
from hlomem.advice.rules.chunks import advise_chunks
from hlomem.advice.rules.donate import advise_donate
from hlomem.advice.rules.layout import advise_layout
from hlomem.advice.rules.logits import advise_logits
from hlomem.advice.rules.narrow import advise_narrow
from hlomem.advice.rules.offload import advise_offload
from hlomem.advice.rules.order import advise_order
from hlomem.advice.rules.padding import advise_padding
from hlomem.advice.rules.scoped import advise_scoped
from hlomem.base.errors import HlomemError
from hlomem.report.data.advice import Advice, AdviceReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hlomem.advice.case import Case

    Rule = Callable[[Case], Iterator[Advice]]


RULES: Mapping[str, Rule] = {
    "donate": advise_donate,
    "order": advise_order,
    "checkpoint": advise_checkpoint,
    "chunks": advise_chunks,
    "logits": advise_logits,
    "carry": advise_carry,
    "offload": advise_offload,
    "padding": advise_padding,
    "layout": advise_layout,
    "narrow": advise_narrow,
    "scoped": advise_scoped,
}
"""The rules by name, in the order in which they are asked."""


_WORTH_SAYING = 0.01
"""Smallest fraction of memory worth an advice."""
_WEIGHT = {"high": 1.0, "medium": 0.7, "low": 0.4}
"""The weight of a saved byte, by confidence."""


def advise_with(rules: Mapping[str, Rule], subject: Case) -> AdviceReport:
    """The advice of some rules, sorted by bytes saved and confidence; possibilities come last."""
    least = _WORTH_SAYING * subject.space.size
    advice = [
        piece
        for name, rule in rules.items()
        for piece in _ask(subject, name, rule)
        if piece.least is None or piece.least > least
    ]
    advice.sort(key=lambda piece: -piece.saves * _WEIGHT[piece.confidence])
    return AdviceReport(
        name=subject.memory.dump.title,
        space=subject.space.name,
        size=subject.space.size,
        advice=tuple(advice),
        notes=tuple(subject.notes),
    )


def _ask(subject: Case, name: str, rule: Rule) -> Iterator[Advice]:
    """The advice of one rule, or a note if it fails."""
    try:
        yield from rule(subject)
    except HlomemError as error:
        subject.notes.append(f"`{name}` could not be tried: {error}")
    except Exception as error:  # noqa: BLE001 - the other rules must still run
        problem = f"{type(error).__name__}: {error}"
        subject.notes.append(f"`{name}` was skipped because of a bug in hlomem: {problem}")
