"""Better orders by moving what is in the way of the peak.

In: a `Flow` and an order. Out: one that keeps no more alive. At the peak some buffers are alive
that the running node does not need: whoever makes such a buffer can be put behind the peak with all
that depends on it, or whoever still reads it before the peak with all that it needs. The search
counts the nodes it evaluates, not seconds, and draws from a generator of its own, so that its
result is the same on every machine.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hlomem.schedule.model import levels_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.schedule.flow import Flow, FlowValue

_MAX_PLATEAU = 12
"""Moves in a row that lower neither the peak nor how often it is reached."""
_SEED = 20261115


class Budget:
    """Work that may be done: nodes evaluated."""

    def __init__(self, nodes: int, whole: Budget | None = None) -> None:
        self.left = nodes
        self._whole = whole

    def share(self, nodes: int) -> Budget:
        """A part of it, for one purpose."""
        return Budget(min(nodes, self.left), self)

    def spend(self, nodes: int) -> bool:
        """Take some of it; whether there was any left."""
        self.left -= nodes
        if self._whole is not None:
            self._whole.spend(nodes)
        return self.left >= 0


Score = tuple[int, int]
"""The peak, and the sum of what the fullest moments hold above the bound of them."""


def improve_order(flow: Flow, order: Sequence[int], budget: Budget) -> list[int]:
    """Move cones away from the peak until nothing helps or the budget is spent."""
    chance = random.Random(_SEED)  # noqa: S311 - not for secrets
    best = list(order)
    best_score, levels = _score(flow, best)
    current, current_score = best, best_score
    plateau = 0
    while plateau < _MAX_PLATEAU:
        moves = list(iter_moves(flow, current, levels))
        chance.shuffle(moves)
        found: tuple[Score, list[int], list[int]] | None = None
        for moved in moves:
            if not budget.spend(len(moved)):
                return best
            score, moved_levels = _score(flow, moved)
            if score < current_score:
                found = score, moved, moved_levels
                break
            if found is None or score < found[0]:
                found = score, moved, moved_levels
        if found is None or found[0][0] > current_score[0]:
            return best
        plateau = 0 if found[0] < current_score else plateau + 1
        current_score, current, levels = found
        if current_score < best_score:
            best, best_score = current, current_score
    return best


def _score(flow: Flow, order: list[int]) -> tuple[Score, list[int]]:
    levels = levels_of(flow, order)
    peak = max(levels, default=0)
    return (peak, sum(level == peak for level in levels)), levels


def iter_moves(flow: Flow, order: list[int], levels: list[int]) -> Iterator[list[int]]:
    """The orders in which something alive and idle at the peak is out of its way."""
    if not order:
        return
    place = levels.index(max(levels))
    place_of = [0] * len(order)
    for number, node in enumerate(order):
        place_of[node] = number
    busy = {*flow.made_by[order[place]], *flow.read_by[order[place]]}
    idle = [
        (flow.sizes[value.buffer], number)
        for number, value in enumerate(flow.values)
        if number not in busy and _is_alive(value, place, place_of)
    ]
    idle.sort(key=lambda entry: (-entry[0], entry[1]))
    for _, number in idle[:_MAX_IDLE]:
        value = flow.values[number]
        if value.made_by >= 0 and (delayed := _delay(flow, order, place_of, value.made_by, place)):
            yield delayed
        if not value.lives_on:
            readers = [node for node in value.readers if place_of[node] > place]
            if advanced := _advance(flow, order, place_of, readers, place):
                yield advanced


_MAX_IDLE = 24


def _is_alive(value: FlowValue, place: int, place_of: Sequence[int]) -> bool:
    if value.made_by >= 0 and place_of[value.made_by] >= place:
        return False
    return value.lives_on or any(place_of[node] > place for node in value.readers)


def _delay(
    flow: Flow, order: list[int], place_of: list[int], maker: int, place: int
) -> list[int] | None:
    """The order with a node, and what depends on it before the peak, right behind the peak."""
    start = place_of[maker]
    cone = {maker}
    for node in order[start + 1 : place + 1]:
        if any(earlier in cone for earlier in flow.before[node]):
            if node == order[place]:
                return None
            cone.add(node)
    segment = order[start : place + 1]
    stay = [node for node in segment if node not in cone]
    moved = [node for node in segment if node in cone]
    return order[:start] + stay + moved + order[place + 1 :]


def _advance(
    flow: Flow, order: list[int], place_of: list[int], readers: list[int], place: int
) -> list[int] | None:
    """The order with nodes, and what they need after the peak, right before the peak."""
    if not readers:
        return None
    end = max(place_of[node] for node in readers)
    cone = set(readers)
    for node in reversed(order[place : end + 1]):
        if node in cone:
            if node == order[place]:
                return None
            cone.update(earlier for earlier in flow.before[node] if place_of[earlier] >= place)
    if order[place] in cone:
        return None
    segment = order[place : end + 1]
    moved = [node for node in segment if node in cone]
    stay = [node for node in segment if node not in cone]
    return order[:place] + moved + stay + order[end + 1 :]
