"""The cheapest set of changes with which a program fits; else all that go together.

In: changes that were compiled one by one. Out: a `FittingSet`. Sets are compiled in the order of
their price until one fits; a set that cannot be enough, were everything saved as often as it is
listed, is not compiled.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from hlomem.report.data.advice import FittingSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.jax.trials.changes import Change
    from hlomem.jax.trials.trying import Trials, Tried
    from hlomem.machines.capacity import Capacity

MAX_COMPILES = 12
_MAX_CHANGES = 4
_TOGETHER = 1.25
"""How much more changes may save together than one by one."""


def find_together(trials: Trials, tried: Sequence[Tried]) -> FittingSet | None:
    """The best change of each kind, taken together; None if there are not two."""
    chosen: list[Change] = []
    for one in sorted(tried, key=lambda one: one.size):
        if not any(_excludes(one.changes[0], other) for other in chosen):
            chosen.append(one.changes[0])
    if len(chosen) < 2:
        return None
    found = trials.try_together(tuple(chosen[:_MAX_CHANGES]))
    return None if found.found is None else _as_set(trials, found, 1, None)


def find_cheapest(trials: Trials, tried: Sequence[Tried], limit: Capacity) -> FittingSet:
    """The first set, by price, that fits; the smallest that was compiled if none does."""
    base = trials.base
    if base.plan.size <= limit.size and not base.plan.is_refused:
        return _as_set(trials, None, 0, limit)
    needed = base.plan.size - limit.size
    known = {one.changes: one for one in tried}
    best: Tried | None = None
    compiled = 0
    for changes in _sets(trials, tried):
        saved = sum(base.plan.size - known[change,].size for change in changes)
        if saved * _TOGETHER < needed:
            continue
        one = known.get(changes)
        if one is None:
            if compiled == MAX_COMPILES:
                break
            one = trials.try_together(changes)
            compiled += 1
        if one.found is None:
            continue
        best = one if best is None or one.size < best.size else best
        if one.size <= limit.size and not one.is_refused:
            return _as_set(trials, one, compiled, limit)
    smallest = min(tried, key=lambda one: one.size, default=None)
    return _as_set(trials, best or smallest, compiled, limit)


def _sets(trials: Trials, tried: Sequence[Tried]) -> Iterator[tuple[Change, ...]]:
    """Sets of changes that do not exclude each other, the cheapest first."""
    price = {one.changes[0]: _price(trials, one) for one in tried}
    found = [
        chosen
        for count in range(1, _MAX_CHANGES + 1)
        for chosen in combinations(price, count)
        if not any(_excludes(one, other) for one, other in combinations(chosen, 2))
    ]
    yield from sorted(
        found, key=lambda chosen: (sum(price[change] for change in chosen), len(chosen))
    )


def _price(trials: Trials, tried: Tried) -> float:
    more = trials.more_flops(tried)
    effort = tried.changes[0].effort
    return effort if more is None or not effort or tried.changes[0].rule == "offload" else more


def _excludes(one: Change, other: Change) -> bool:
    return not one.sites.isdisjoint(other.sites)


def _as_set(
    trials: Trials, tried: Tried | None, compiled: int, limit: Capacity | None
) -> FittingSet:
    size = trials.base.plan.size if tried is None else tried.size
    refused = trials.base.plan.is_refused if tried is None else tried.is_refused
    return FittingSet(
        limit=None if limit is None else limit.size,
        limit_name="" if limit is None else limit.name,
        titles=() if tried is None else tuple(change.title for change in tried.changes),
        size=size,
        fits=limit is not None and size <= limit.size and not refused,
        cost="" if tried is None else trials.cost(tried),
        how="" if tried is None else tried.how(),
        tried=compiled,
    )
