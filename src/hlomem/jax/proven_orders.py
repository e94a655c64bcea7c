"""An order that a compiler was seen to need less memory for.

In: a scheduled module, its stages, and a function that lets the compiler plan a module. Out: the
order for which its plan is the smallest, if that is smaller by more than chance. Used where the
compiler does more after the hook than hlomem can foresee: libtpu fills fast memory there.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import HlomemError
from hlomem.jax.module_proto import with_orders
from hlomem.opt.order_search import find_objections
from hlomem.opt.orders.candidates import iter_candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hlomem.opt.order_search import BetterOrder, Rules
    from hlomem.opt.orders.candidates import CandidateOrder
    from hlomem.opt.orders.search import Effort, Orders

    Plan = Callable[[bytes], int]

MAX_TRIED: Mapping[Effort, int] = {"low": 3, "default": 8, "high": 24}
"""Orders that the compiler plans, beside its own."""
LEAST_SAVING = 0.02
"""The share that must be saved. A module that is handed back is built anew, with its lists in
another order: libtpu 0.0.51 was seen to plan the same order with up to 1 % more or less then."""
_MAX_AT_ONCE = 4


class ProvenOrder(NamedTuple):
    """The outcome of trying orders."""

    before: int
    """Bytes of temporaries in the given order, as the compiler plans it."""
    after: int
    orders: Orders
    """Empty where none is better."""
    name: str
    tried: int
    problems: tuple[str, ...]
    """Of the plans that failed."""
    objections: tuple[str, ...] = ()
    """Of the judge to the best order, which is not taken then."""


def prove_orders(
    proto: bytes, found: BetterOrder, rules: Rules, plan: Plan, before: int | None = None
) -> ProvenOrder:
    """Let the compiler plan the given order and several others; the best of them.

    `found` is what the search came to by hlomem's own plan. `before` is what the compiler needs if
    nothing is handed back to it, where that is known: then anything less is taken. Raises what the
    plan of the given order raises; another order whose plan fails is not taken.
    """
    least_saving = LEAST_SAVING if before is None else 0.0
    candidates = list(
        islice(
            iter_candidates(
                found.stages,
                found.orders,
                may_reorder_collectives=rules.may_reorder_collectives,
            ),
            MAX_TRIED[rules.effort],
        )
    )
    problems: list[str] = []
    with ThreadPoolExecutor(min(_MAX_AT_ONCE, os.cpu_count() or 1)) as pool:
        given = pool.submit(plan, proto) if before is None else None
        planned = pool.map(lambda candidate: _plan_of(proto, candidate, plan), candidates)
        before = given.result() if given is not None else before
        sizes = list(_sizes(planned, problems))
    tried = len(candidates)
    known = [(size, place) for place, size in enumerate(sizes) if size is not None]
    assert before is not None
    size, best = min(known, default=(before, 0))
    if size >= before or size > before * (1 - least_saving):
        return ProvenOrder(before, before, {}, "as given", tried, tuple(problems))
    chosen = candidates[best]
    if objections := find_objections(found.stages, chosen.orders, rules):
        said = f"an order was found and rejected: {objections[0]}"
        return ProvenOrder(before, before, {}, "as given", tried, tuple(problems), (said,))
    return ProvenOrder(before, size, chosen.orders, chosen.name, tried, tuple(problems))


def _plan_of(proto: bytes, candidate: CandidateOrder, plan: Plan) -> int | str:
    try:
        return plan(with_orders(proto, candidate.orders))
    except HlomemError as error:
        return str(error).partition("\n")[0]


def _sizes(planned: Iterator[int | str], problems: list[str]) -> Iterator[int | None]:
    for result in planned:
        if isinstance(result, str):
            problems.append(result)
            yield None
        else:
            yield result
