"""Better orders by planning each: for programs small enough to be planned many times.

In: the stages of a plan, the order of its entry, a number of plans to spend. Out: an order whose plan
needs no more. The model of `model.py` does not know that temporaries may borrow the memory of
results, nor what packing loses; here every step is judged by the plan itself.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hlomem.schedule.local_search import iter_moves
from hlomem.schedule.model import levels_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.schedule.flow import Flow

_SEED = 7
_MAX_FAILURES = 40
"""Moves in a row that do not help before the climb ends."""


def climb(
    flow: Flow, order: list[int], cost_of: Callable[[list[int]], int], plans: int
) -> tuple[int, list[int]]:
    """The cheapest order found with that many plans, and its cost; `order` at worst."""
    chance = random.Random(_SEED)  # noqa: S311 - not for secrets
    best, best_cost = order, cost_of(order)
    failures = 0
    moves: list[list[int]] = []
    for _ in range(plans):
        if not moves:
            moves = [*iter_moves(flow, best, levels_of(flow, best)), *_swaps(flow, best, chance)]
            chance.shuffle(moves)
        if not moves or failures >= _MAX_FAILURES:
            break
        tried = moves.pop()
        cost = cost_of(tried)
        if cost < best_cost:
            best, best_cost, moves, failures = tried, cost, [], 0
        else:
            failures += 1
    return best_cost, best


def _swaps(flow: Flow, order: list[int], chance: random.Random) -> list[list[int]]:
    """Orders in which one node runs as early, or as late, as its edges allow."""
    place_of = {node: place for place, node in enumerate(order)}
    found = []
    for node in chance.sample(order, min(len(order), _MAX_SWAPS)):
        place = place_of[node]
        first = max((place_of[each] for each in flow.before[node]), default=-1) + 1
        last = min((place_of[each] for each in flow.after[node]), default=len(order)) - 1
        rest = order[:place] + order[place + 1 :]
        for goal in (first, last):
            if goal != place:
                found.append([*rest[:goal], node, *rest[goal:]])
    return found


_MAX_SWAPS = 32
