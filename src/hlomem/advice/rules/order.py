"""`order`: let hlomem's pass improve the program, if it finds a better one.

The search of the pass is run: another order, and values recomputed for next to nothing. Of a large
program only orders found with little effort are looked at: it saves that at least, and at most what
the lower bound allows. No XLA flag is advised: its other scheduler often needs more.

The pass meets a checkpointed program with the barriers of jax.checkpoint, which XLA expands after
it (`OptimizationBarrierExpander`) and a dump does not show: which orders are possible there is not
known from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.advice.functions import is_checkpointed
from hlomem.opt.candidate import Program
from hlomem.opt.constants import RECOMPUTE
from hlomem.opt.goal import Rules, Share
from hlomem.opt.search import find_accepted, find_order
from hlomem.report.data.advice import Advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case
    from hlomem.opt.candidate import Candidate

LINK = "https://docs.jax.dev/en/latest/jax.extend.html"
HOW = """import hlomem.jax
hlomem.jax.optimize()  # before it is compiled; jax 0.10.2 or later"""
TITLE = "let hlomem's pass run the instructions in another order"
COST = "compiling takes about twice as long; results are equal to the bit"
_LARGE = 5_000
"""Instructions from which on the pass is not run in full."""


def advise_order(subject: Case) -> Iterator[Advice]:
    """One advice, unless fast memory was already assigned for the given order."""
    if subject.machine.preset_color is not None or subject.space.color:
        return
    is_large = sum(1 for _ in subject.module.iter_outer_instructions()) > _LARGE
    rules = Rules("low" if is_large else "default", recompute=RECOMPUTE)
    ordered = find_order(Program(subject.stages, rules, is_rebuilt=subject.is_rebuilt))
    again = None if is_large else _recomputed(subject, ordered)
    order = ordered.order
    assert order is not None
    saved = order.before - (again or ordered).temporaries
    if saved <= 0:
        return
    if is_checkpointed(subject.memory):
        yield _advice(TITLE)
        return
    bound = order.before - order.bound if order.bound is not None and again is None else saved
    title = f"{TITLE}, and recompute what is almost free" if again else TITLE
    yield replace(
        _advice(title),
        least=saved,
        most=max(saved, bound) if is_large else saved,
        method="re-planned",
        confidence="high" if subject.is_xlas and not subject.is_rebuilt else "medium",
    )


def _advice(title: str) -> Advice:
    """A possibility, without bytes."""
    return Advice(
        rule="order",
        title=title,
        method="possible",
        confidence="low",
        cost=COST,
        how=HOW,
        link=LINK,
    )


def _recomputed(subject: Case, ordered: Candidate) -> Candidate | None:
    """The program with values recomputed for next to nothing, if that needs less."""
    if subject.is_rebuilt or not subject.module.is_scheduled:
        return None
    found, _ = find_accepted(ordered, Share(RECOMPUTE))
    return found if found is not None and found.temporaries < ordered.temporaries else None
