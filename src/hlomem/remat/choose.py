"""The choice of a value to compute again: the one that frees most for what it costs.

In: a `State` and a number of bytes. Out: the next state, or None where nothing helps. At the place
where most is alive, values are looked at that are needed later but not there. To compute one again
right before its next reader, its operands must be there: those that are alive are read, those that
are dead are computed again as well, or kept alive where that is small beside what is freed. Of the
steps that promise most, the one is taken that lowers what is above the number most per operation
and byte touched, over the whole program; none that raises the peak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.remat.state import FORWARDS, State, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.remat.flops import Costs

MAX_CHAIN = 48
"""Instructions that may be computed again for one value."""
_LEAST_SHARE = 0.002
"""Of the peak; smaller values are looked at when no larger one helps."""
_NEAR_PEAK = (0.9, 0.97, 0.995)
"""Shares of the peak above which bytes count when the target is too far to tell."""
_TRIED = 10
"""Steps whose effect on the whole program is counted, of those that promise most."""
_KEPT_SHARES = (0.0, 0.25, 1.0)
"""Operands up to these shares of what is freed are kept alive rather than computed again."""


class Choice(NamedTuple):
    """A step that helps."""

    state: State
    flops: int
    """Operations it adds."""


class _Offer(NamedTuple):
    step: Step
    freed: int
    flops: int
    cost: int


def choose(state: State, costs: Costs, target: int) -> Choice | None:
    """The best step towards a number of bytes; None where no step helps."""
    levels = state.levels()
    peak = max(levels, default=0)
    full = [place for place, level in enumerate(levels) if level == peak]
    offers = _Offers(state, costs)
    for at in dict.fromkeys((full[0], full[-1])):
        for least in (_LEAST_SHARE * peak, 0):
            found = {offer.step.key: offer for offer in offers.at(at) if offer.freed > least}
            best = sorted(found.values(), key=lambda offer: -offer.freed / offer.cost)[:_TRIED]
            tried = [(offer, state.apply(offer.step)) for offer in best]
            choice = _take_best(levels, tried, target)
            if choice is not None:
                return choice
    return None


def _take_best(levels: list[int], tried: list[tuple[_Offer, State]], target: int) -> Choice | None:
    """The step that lowers most per cost: above the target, else above what is near the peak."""
    peak = max(levels)
    lower: list[tuple[_Offer, State, list[int]]] = []
    for offer, after in tried:
        new = after.levels()
        if max(new) < peak or (max(new) == peak and new.count(peak) < levels.count(peak)):
            lower.append((offer, after, new))
    for floor in (target, *(round(peak * share) for share in _NEAR_PEAK)):
        gains = [
            ((_above(levels, floor) - _above(new, floor)) / offer.cost, offer, after)
            for offer, after, new in lower
        ]
        best = max(gains, key=lambda gain: gain[0], default=None)
        if best is not None and best[0] > 0:
            return Choice(best[2], best[1].flops)
    return None


def _above(levels: list[int], target: int) -> int:
    """Bytes above a target, over all places."""
    return sum([level - target for level in levels if level > target])


class _Offers:
    """The steps that are possible in one state."""

    def __init__(self, state: State, costs: Costs) -> None:
        self._state = state
        self._costs = costs
        self._places = places = {node: place for place, node in enumerate(state.order)}
        self._last = [
            len(places)
            if value.lives_on
            else max([places[reader] for reader in value.readers], default=-1)
            for value in state.flow.values
        ]
        self._copies: dict[int, list[int]] = {}
        for node, origin in enumerate(state.origin):
            self._copies.setdefault(origin, []).append(node)

    def at(self, place: int) -> Iterator[_Offer]:
        """Steps that free something at a place."""
        flow, places = self._state.flow, self._places
        for number, value in enumerate(flow.values):
            size = flow.sizes[value.buffer]
            if not size or value.made_by < 0 or self._last[number] <= place or value.lives_on:
                continue
            is_read = any(places[reader] == place for reader in value.readers)
            if is_read or places[value.made_by] >= place or not self._may_repeat(value.made_by):
                continue
            for share in _KEPT_SHARES:
                offer = self._offer(number, place, size, round(size * share))
                if offer is not None:
                    yield offer

    def _may_repeat(self, node: int) -> bool:
        return self._state.facts.may_repeat[self._state.origin[node]]

    def _offer(self, value: int, place: int, size: int, kept_size: int) -> _Offer | None:
        """A value dropped at a place and made again, or only then, for those that read it later."""
        state, places = self._state, self._places
        known = state.flow.values[value]
        later = [reader for reader in known.readers if places[reader] > place]
        if any(state.instruction(reader).opcode == "tuple" for reader in later):
            return None  # a loop may begin with it, and with its memory
        first = min(later, key=lambda reader: places[reader])
        moved = self._movable(value, places[first])
        chain = _Chain(self, places[first], kept_size, moved)
        rewired: dict[int, tuple[int, ...]] = {}
        if moved and not all(chain.remake(node, value) is not None for node in moved):
            return None
        for reader in () if moved else later:
            operands: list[int] = []
            for operand in state.operands[reader]:
                is_old = value in state.holds[operand] and places[operand] < chain.place
                made = chain.remake(operand, value) if is_old else operand
                if made is None:
                    return None
                operands.append(made)
            rewired[reader] = tuple(operands)
        freed = size - self._kept_at(place, chain)
        if freed <= 0:
            return None
        instructions = [state.instruction(node) for node, _ in chain.clones]
        flops = self._costs.total(instructions)
        touched = sum(map(self._costs.bytes_touched, instructions))
        step = Step(value, first, tuple(chain.clones), chain.moved, rewired)
        return _Offer(step, freed, flops, flops + touched + 1)

    def _kept_at(self, place: int, chain: _Chain) -> int:
        """Bytes that are alive at a place only because a chain reads them later."""
        flow = self._state.flow
        return sum(
            flow.sizes[flow.values[other].buffer]
            for other in chain.kept
            if self._last[other] < place
        )

    def _movable(self, value: int, place: int) -> list[int]:
        """The nodes that make and hand on a value, if nobody reads it before a place; else none."""
        state, places = self._state, self._places
        maker = state.flow.values[value].made_by
        early: list[int] = []
        for made in state.flow.made_by[maker]:
            if state.flow.values[made].lives_on:
                return []
            early += [node for node in state.flow.values[made].readers if places[node] < place]
        if any(state.instruction(node).opcode not in FORWARDS for node in early):
            return []
        return sorted({maker, *early}, key=lambda node: places[node])

    def is_there(self, node: int, place: int) -> bool:
        """Whether all that a node holds is alive at a place, and not written over."""
        return (
            self._places[node] < place
            and self.is_intact(node, place)
            and all(self._last[value] >= place for value in self._state.holds[node])
        )

    def is_intact(self, node: int, place: int) -> bool:
        """Whether no next value is written over what a node holds before a place."""
        state = self._state
        if node >= state.count:
            return True
        return all(self._places[writer] >= place for writer in state.facts.limits[node])

    def find_copy(self, node: int, place: int) -> int | None:
        """The node or a clone of the same that is there."""
        if self.is_there(node, place):
            return node
        copies = self._copies[self._state.origin[node]]
        return next((copy for copy in copies if self.is_there(copy, place)), None)

    def chain_parts(self, node: int) -> tuple[State, bool]:
        """The state, and whether a node may be computed again."""
        return self._state, self._may_repeat(node)


class _Chain:
    """The nodes to compute again right before a place."""

    def __init__(self, offers: _Offers, place: int, kept_size: int, moved: Sequence[int]) -> None:
        self._offers = offers
        self.place = place
        self._kept_size = kept_size
        self.clones: list[tuple[int, tuple[int, ...]]] = []
        self.kept: set[int] = set()
        self.moved: dict[int, tuple[int, ...]] = {}
        self._moves = frozenset(moved)
        self._made: dict[int, int] = {}

    def remake(self, node: int, value: int) -> int | None:
        """The clone of what holds a value; None where it cannot be made."""
        if node in self._made:
            return self._made[node]
        state, may_repeat = self._offers.chain_parts(node)
        if not may_repeat or len(self.clones) >= MAX_CHAIN:
            return None
        operands: list[int] = []
        for operand in state.operands[node]:
            if operand in self._moves or value in state.holds[operand]:  # on the way to its maker
                found = self.remake(operand, value)
            else:
                found = self._need(operand, value)
            if found is None:
                return None
            operands.append(found)
        if node in self._moves:
            self.moved[node] = tuple(operands)
            self._made[node] = node
            return node
        if len(self.clones) >= MAX_CHAIN:
            return None
        self.clones.append((node, tuple(operands)))
        self._made[node] = -len(self.clones)
        return self._made[node]

    def _need(self, node: int, value: int) -> int | None:
        """The node to read for an operand: the one there, a clone, or the one kept alive."""
        offers, place = self._offers, self.place
        found = offers.find_copy(node, place)
        if found is not None:
            return found
        state, may_repeat = offers.chain_parts(node)
        sizes = state.flow.sizes
        size = sum(sizes[state.flow.values[held].buffer] for held in state.holds[node])
        can_keep = offers.is_intact(node, place) and value not in state.holds[node]
        if can_keep and (size <= self._kept_size or not may_repeat):
            self.kept.update(state.holds[node])
            return node
        return self.remake(node, value) if may_repeat else None
