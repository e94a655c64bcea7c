"""`order`: let hlomem's pass reorder the program; XLA's other scheduler often needs more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt.goal import Rules
from hlomem.opt.orders.search import improve
from hlomem.report.data.advice import Advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case

LINK = "https://docs.jax.dev/en/latest/jax.extend.html"
_HOW = """import hlomem.jax
hlomem.jax.optimize()  # before it is compiled; jax 0.10.2 or later"""


def advise_order(subject: Case) -> Iterator[Advice]:
    """One advice, unless fast memory was already assigned for the given order."""
    if subject.machine.preset_color is not None or subject.space.color:
        return
    stages = subject.stages
    found = improve(stages, Rules("low"))
    if not found.orders:
        return
    saved = found.before - found.after
    yield Advice(
        rule="order",
        title="run the same instructions in another order",
        least=saved,
        most=saved if found.bound is None else found.before - found.bound,
        method="re-planned",
        confidence="high" if subject.is_xlas and not subject.is_rebuilt else "medium",
        cost="compiling takes about twice as long; results are equal to the bit",
        how=_HOW,
        link=LINK,
    )
