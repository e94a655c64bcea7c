"""Better orders by moving what is in the way of the peak.

A buffer that is alive at the peak and not needed there is made after it, with all that depends on
it, or read before it, with all that its readers need. Where no move helps, a few are made
regardless from the best order so far. Work is counted in nodes, and the random generator is fixed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.constants import (
    MAX_IDLE,
    MAX_KICK,
    MAX_MET,
    MAX_PLATEAU,
    MAX_SHIFTED,
    MIN_PATIENCE,
    MOVE_COST,
)
from hlomem.opt.orders.model import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.opt.orders.flow import Flow, FlowValue

_SEED = 20261115


class MovesLeft:
    """Work that may be done: nodes evaluated."""

    def __init__(self, nodes: int, whole: MovesLeft | None = None) -> None:
        self.left = nodes
        self._whole = whole

    def share(self, nodes: int) -> MovesLeft:
        """A part of it, for one purpose."""
        return MovesLeft(min(nodes, self.left), self)

    def spend(self, nodes: int) -> bool:
        """Take some of it; whether there was any left."""
        self.left -= nodes
        if self._whole is not None:
            self._whole.spend(nodes)
        return self.left >= 0


class Move(NamedTuple):
    """A stretch of an order, and its nodes in another order."""

    first: int
    """The position where the stretch begins."""
    stretch: list[int]


Score = tuple[int, int]
"""The peak, and how often it is reached."""


def improve_order(
    flow: Flow, order: Sequence[int], budget: MovesLeft, floor: int = 0
) -> list[list[int]]:
    """Orders moved away from the peak until `floor` or the budget: equal ones, then the best."""
    if budget.left <= 0:
        return [list(order)]
    return _LocalSearch(flow, order, budget, floor).run()


class _LocalSearch:
    def __init__(self, flow: Flow, order: Sequence[int], budget: MovesLeft, floor: int) -> None:
        self._chance = random.Random(_SEED)  # noqa: S311 - not for secrets
        self._budget = budget
        self._floor = floor
        self._line = Timeline(flow, order)
        self._score = _score(self._line.levels)
        self._best = self._line.copy()
        self._best_score = self._score
        self._met: list[list[int]] = []

    def run(self) -> list[list[int]]:
        """Go down, and on from a kick, while there is work left."""
        while self._descend() and self._best_score[0] > self._floor:
            self._remember()
            if not self._kick():
                break
        best = self._best.order
        return [*(order for order in self._met if order != best), best]

    def _remember(self) -> None:
        """Keep an order that is as good as the best; the latest few."""
        if self._score[0] == self._best_score[0] and self._line.order not in self._met:
            self._met = [*self._met[1 - MAX_MET :], self._line.order.copy()]

    def _descend(self) -> bool:
        """Take moves that help, or do no harm; whether there is work left."""
        plateau = 0
        while plateau < MAX_PLATEAU and self._best_score[0] > self._floor:
            step = self._find_step()
            if step is None:
                return self._budget.left > 0
            score, move, levels = step
            plateau = 0 if score < self._score else plateau + 1
            self._take(move, levels, score)
        return self._budget.left > 0

    def _find_step(self) -> tuple[Score, Move, list[int]] | None:
        """The first move that helps, else the best that does no harm."""
        found: tuple[Score, Move, list[int]] | None = None
        for move in iter_moves(self._line, self._chance):
            if not self._budget.spend(MOVE_COST + 2 * len(move.stretch)):
                return None
            levels = self._line.levels_with(*move, most=self._score[0])
            if levels[-1] > self._score[0]:
                continue
            score = self._score_with(move, levels)
            if found is None or score < found[0]:
                found = score, move, levels
            if score < self._score:
                break
        return found

    def _score_with(self, move: Move, levels: list[int]) -> Score:
        all_levels = self._line.levels
        end = move.first + len(levels)
        return _score(all_levels[: move.first] + levels + all_levels[end:])

    def _take(self, move: Move, levels: list[int], score: Score) -> None:
        self._line.put(*move, levels)
        self._score = score
        if score[0] < self._best_score[0]:
            self._met.clear()
        if score < self._best_score:
            self._best, self._best_score = self._line.copy(), score

    def _kick(self) -> bool:
        """Make some moves from the best order, whatever they cost; whether there were any."""
        self._line = self._best.copy()
        for _ in range(self._chance.randint(1, MAX_KICK)):
            move = next(iter_moves(self._line, self._chance), None)
            if move is None or not self._budget.spend(len(self._best.order)):
                return False
            self._line.put(*move, self._line.levels_with(*move))
        self._score = _score(self._line.levels)
        return True


def _score(levels: list[int]) -> Score:
    peak = max(levels, default=0)
    return peak, levels.count(peak)


def iter_moves(line: Timeline, chance: random.Random | None = None) -> Iterator[Move]:
    """Moves that take something alive and idle at the peak out of its way; shuffled by `chance`."""
    flow, order, place_of = line.flow, line.order, line.place_of
    if not order:
        return
    place = line.levels.index(max(line.levels))
    busy = {*flow.made_by[order[place]], *flow.read_by[order[place]]}
    idle = [
        (flow.sizes[value.buffer], number)
        for number, value in enumerate(flow.values)
        if number not in busy and flow.sizes[value.buffer] and _is_alive(value, place, place_of)
    ]
    idle.sort(key=lambda entry: (-entry[0], entry[1]))
    ways = [(number, way) for _, number in idle[:MAX_IDLE] for way in (_delay, _advance)]
    if chance is not None:
        chance.shuffle(ways)
    for number, way in ways:
        if move := way(line, flow.values[number], place):
            yield move


def _is_alive(value: FlowValue, place: int, place_of: Sequence[int]) -> bool:
    _, made_by, readers, lives_on = value
    if made_by >= 0 and place_of[made_by] >= place:
        return False
    if lives_on:
        return True
    for reader in readers:  # noqa: SIM110 - asked for every value at every peak
        if place_of[reader] > place:
            return True
    return False


def _delay(line: Timeline, value: FlowValue, place: int) -> Move | None:
    """Puts the maker of a value, and its dependents before the peak, right after the peak."""
    if value.made_by < 0:
        return None
    before, order = line.flow.before, line.order
    start = line.place_of[value.made_by]
    stretch = order[start : place + 1]
    cone = {value.made_by}
    for node in stretch[1:]:
        if not cone.isdisjoint(before[node]):
            cone.add(node)
    if order[place] in cone:
        return None
    stay = [node for node in stretch if node not in cone]
    return Move(start, stay + [node for node in stretch if node in cone])


def _advance(line: Timeline, value: FlowValue, place: int) -> Move | None:
    """Puts the later readers of a value, and their needs after the peak, right before the peak."""
    before, order, place_of = line.flow.before, line.order, line.place_of
    cone = {node for node in value.readers if place_of[node] > place}
    if value.lives_on or not cone:
        return None
    stretch = order[place : max(place_of[node] for node in cone) + 1]
    for node in reversed(stretch):
        if node in cone:
            cone.update(before[node])
    if order[place] in cone:
        return None
    moved = [node for node in stretch if node in cone]
    return Move(place, moved + [node for node in stretch if node not in cone])


_CLIMB_SEED = 7


class Planned(NamedTuple):
    cost: int
    """Bytes of temporaries."""
    flow: Flow
    """With sizes of nothing for what does not lie among the temporaries."""


class Climbed(NamedTuple):
    cost: int
    order: list[int]
    plans: int
    """How many were made."""


def climb(
    order: list[int],
    plan: Callable[[list[int]], Planned],
    plans: int,
    is_enough: Callable[[int], bool] = lambda cost: not cost,
) -> Climbed:
    """The cheapest order found with that many plans; `order` at worst, at best enough."""
    chance = random.Random(_CLIMB_SEED)  # noqa: S311 - not for secrets
    best, best_plan = order, plan(order)
    current, current_plan = best, best_plan
    seen = {tuple(order)}
    moves = _shuffled_moves(current_plan.flow, current, chance)
    spent, last_gain, idle = 1, 1, 0
    patience = max(MIN_PATIENCE, plans // 2)
    while spent < min(plans, last_gain + patience) and not is_enough(best_plan.cost):
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
