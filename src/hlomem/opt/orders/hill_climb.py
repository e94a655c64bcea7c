"""Better orders by planning each step, for programs small enough to be planned many times.

Plans know what `model.py` does not: memory borrowed from results, and what packing loses. Steps
that cost the same are taken, too, since the way down often leads along a plain.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.constants import MAX_SHIFTED, MIN_PATIENCE
from hlomem.opt.orders.local_search import iter_moves
from hlomem.opt.orders.model import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.opt.orders.flow import Flow

_SEED = 7


class Planned(NamedTuple):
    """An order as it is planned."""

    cost: int
    """Bytes of temporaries."""
    flow: Flow
    """With sizes of nothing for what does not lie among the temporaries."""


class Climbed(NamedTuple):
    """The cheapest order found."""

    cost: int
    order: list[int]
    plans: int
    """How many were made."""


def climb(
    order: list[int], plan: Callable[[list[int]], Planned], plans: int, floor: int = 0
) -> Climbed:
    """The cheapest order found with that many plans; `order` at worst, at `floor` the best."""
    chance = random.Random(_SEED)  # noqa: S311 - not for secrets
    best, best_plan = order, plan(order)
    current, current_plan = best, best_plan
    seen = {tuple(order)}
    moves = _shuffled_moves(current_plan.flow, current, chance)
    spent, last_gain, idle = 1, 1, 0
    patience = max(MIN_PATIENCE, plans // 2)
    while spent < min(plans, last_gain + patience) and best_plan.cost > floor:
        tried = next((move for move in moves if tuple(move) not in seen), None)
        if tried is None:
            if current is best or idle:
                break
            current, current_plan, idle = best, best_plan, idle + 1
            moves = _shuffled_moves(current_plan.flow, current, chance)
            continue
        seen.add(tuple(tried))
        planned = plan(tried)
        spent += 1
        if planned.cost <= current_plan.cost:
            current, current_plan, idle = tried, planned, 0
            moves = _shuffled_moves(current_plan.flow, current, chance)
        if planned.cost < best_plan.cost:
            best, best_plan, last_gain = tried, planned, spent
    return Climbed(best_plan.cost, best, spent)


def _shuffled_moves(flow: Flow, order: list[int], chance: random.Random) -> Iterator[list[int]]:
    """The orders one move away: what is in the way of the peak first, then single nodes."""
    for first, stretch in iter_moves(Timeline(flow, order), chance):
        yield order[:first] + stretch + order[first + len(stretch) :]
    shifts = list(_shifts(flow, order, chance))
    chance.shuffle(shifts)
    yield from shifts


def _shifts(flow: Flow, order: list[int], chance: random.Random) -> Iterator[list[int]]:
    """Orders in which one node runs as early, or as late, as its edges allow, or in between."""
    place_of = {node: place for place, node in enumerate(order)}
    for node in chance.sample(order, min(len(order), MAX_SHIFTED)):
        place = place_of[node]
        first = max((place_of[earlier] for earlier in flow.before[node]), default=-1) + 1
        last = min((place_of[later] for later in flow.after[node]), default=len(order)) - 1
        rest = order[:place] + order[place + 1 :]
        for goal in {first, last, chance.randint(first, last)} - {place}:
            yield [*rest[:goal], node, *rest[goal:]]
