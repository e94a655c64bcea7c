"""Better orders by moving what is in the way of the peak.

In: a `Flow` and an order. Out: one that keeps no more alive. At the peak some buffers are alive
that the running node does not need: whoever makes such a buffer can be put behind the peak with all
that depends on it, or whoever still reads it before the peak with all that it needs. Where no such
move helps, a few are made regardless, from the best order so far, and the search goes on from
there. It counts the nodes it evaluates, not seconds, and draws from a generator of its own, so that
its result is the same on every machine.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from hlomem.schedule.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.schedule.flow import Flow, FlowValue

_MAX_PLATEAU = 12
"""Moves in a row that lower neither the peak nor how often it is reached."""
_MAX_KICK = 3
"""Moves that are made regardless, at most, where none helps."""
_MAX_IDLE = 24
"""Buffers in the way of a peak, the largest, that moves are made for."""
_MOVE_COST = 4
"""What making a move counts beside evaluating it, in nodes for each buffer in the way."""
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


class Move(NamedTuple):
    """A stretch of an order, and its nodes in another order."""

    first: int
    """The place where the stretch begins."""
    stretch: list[int]


Score = tuple[int, int]
"""The peak, and how often it is reached."""


def improve_order(flow: Flow, order: Sequence[int], budget: Budget, floor: int = 0) -> list[int]:
    """Move cones away from the peak until it is at the floor or the budget is spent."""
    return _LocalSearch(flow, order, budget, floor).run()


class _LocalSearch:
    def __init__(self, flow: Flow, order: Sequence[int], budget: Budget, floor: int) -> None:
        self._chance = random.Random(_SEED)  # noqa: S311 - not for secrets
        self._flow = flow
        self._budget = budget
        self._floor = floor
        self._line = Timeline(flow, order)
        self._score = _score(self._line.levels)
        self._best = list(order)
        self._best_score = self._score

    def run(self) -> list[int]:
        """Go down, and on from a kick, while there is work left."""
        while self._descend() and self._best_score[0] > self._floor:
            if not self._kick():
                break
        return self._best

    def _descend(self) -> bool:
        """Take moves that help, or do no harm; whether there is work left."""
        plateau = 0
        while plateau < _MAX_PLATEAU and self._best_score[0] > self._floor:
            step = self._find_step()
            if step is None:
                return self._budget.left > 0
            score, move, levels = step
            plateau = 0 if score < self._score else plateau + 1
            self._take(move, levels, score)
        return self._budget.left > 0

    def _find_step(self) -> tuple[Score, Move, list[int]] | None:
        """The first move that helps, else the best that does no harm."""
        moves = list(iter_moves(self._line))
        if not self._budget.spend(_MOVE_COST * len(moves)):
            return None
        self._chance.shuffle(moves)
        found: tuple[Score, Move, list[int]] | None = None
        for move in moves:
            if not self._budget.spend(len(move.stretch)):
                return None
            levels = self._line.levels_with(*move)
            if max(levels) > self._score[0]:
                continue
            score = self._score_with(move, levels)
            if found is None or score < found[0]:
                found = score, move, levels
            if score < self._score:
                break
        return found

    def _score_with(self, move: Move, levels: list[int]) -> Score:
        """The score once a move is made."""
        all_levels = self._line.levels
        end = move.first + len(levels)
        return _score(all_levels[: move.first] + levels + all_levels[end:])

    def _take(self, move: Move, levels: list[int], score: Score) -> None:
        self._line.put(*move, levels)
        self._score = score
        if score < self._best_score:
            self._best, self._best_score = self._line.order.copy(), score

    def _kick(self) -> bool:
        """Make some moves from the best order, whatever they cost; whether there were any."""
        self._line = Timeline(self._flow, self._best)
        for _ in range(self._chance.randint(1, _MAX_KICK)):
            moves = list(iter_moves(self._line))
            if not moves or not self._budget.spend(len(self._best)):
                return False
            move = self._chance.choice(moves)
            self._line.put(*move, self._line.levels_with(*move))
        self._score = _score(self._line.levels)
        return True


def _score(levels: list[int]) -> Score:
    peak = max(levels, default=0)
    return peak, levels.count(peak)


def iter_moves(line: Timeline) -> Iterator[Move]:
    """What takes something alive and idle at the peak out of its way."""
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
    for _, number in idle[:_MAX_IDLE]:
        value = flow.values[number]
        if value.made_by >= 0 and (delayed := _delay(line, value.made_by, place)):
            yield delayed
        if not value.lives_on:
            readers = [node for node in value.readers if place_of[node] > place]
            if advanced := _advance(line, readers, place):
                yield advanced


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


def _delay(line: Timeline, maker: int, place: int) -> Move | None:
    """A node, and what depends on it before the peak, right behind the peak."""
    before, order = line.flow.before, line.order
    start = line.place_of[maker]
    stretch = order[start : place + 1]
    cone = {maker}
    for node in stretch[1:]:
        if not cone.isdisjoint(before[node]):
            cone.add(node)
    if order[place] in cone:
        return None
    stay = [node for node in stretch if node not in cone]
    return Move(start, stay + [node for node in stretch if node in cone])


def _advance(line: Timeline, readers: list[int], place: int) -> Move | None:
    """Nodes, and what they need after the peak, right before the peak."""
    if not readers:
        return None
    before, order, place_of = line.flow.before, line.order, line.place_of
    end = max(place_of[node] for node in readers)
    stretch = order[place : end + 1]
    cone = set(readers)
    for node in reversed(stretch):
        if node in cone:
            cone.update(before[node])
    if order[place] in cone:
        return None
    moved = [node for node in stretch if node in cone]
    return Move(place, moved + [node for node in stretch if node not in cone])
