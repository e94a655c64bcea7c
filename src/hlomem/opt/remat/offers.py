"""Offers: values that could be dropped at a place, and made again before their next readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt import constants
from hlomem.opt.remat.chain import Chain
from hlomem.opt.remat.places import Places
from hlomem.opt.remat.state import State, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.opt.orders.cost import Costs


class Offer(NamedTuple):
    step: Step
    price: int
    cost: int
    end: int
    """The position of the first reader after the peak, before which the clones go."""
    changes: tuple[tuple[int, int], ...]
    """Places from which on, up to the end, so many bytes more are alive; ascending."""
    there: int
    """The most bytes that are alive while the clones run."""

    @property
    def freed(self) -> int:
        """Bytes that are not alive any more where the first change is."""
        return -self.changes[0][1]


class Offers:
    """All steps that free something, for one state."""

    def __init__(self, state: State, levels: list[int], costs: Costs) -> None:
        self._state = state
        self._levels = levels
        self._costs = costs
        self._places = Places(state)

    def at(self, place: int, least: float) -> Iterator[Offer]:
        """Steps that free something at a place, by values of more than so many bytes."""
        flow, places, last = self._state.flow, self._places.of, self._places.last
        for number, value in enumerate(flow.values):
            size = flow.sizes[value.buffer]
            if size <= least or value.made_by < 0 or last[number] <= place or value.lives_on:
                continue
            made_at = places[value.made_by]
            if not 0 <= made_at < place or not self._state.may_repeat(value.made_by):
                continue
            is_read = any(places[reader] == place for reader in value.readers)
            if not is_read or self._places.is_taken_over(number, place):
                yield from self._offers_of(number, place, size)

    def _offers_of(self, value: int, place: int, size: int) -> Iterator[Offer]:
        """The ways to drop a value at a place, by how much of its operands is kept."""
        state, places = self._state, self._places.of
        known = state.flow.values[value]
        later = [reader for reader in known.readers if places[reader] > place]
        first = min(later, key=lambda reader: places[reader])
        moved = self._places.movable(value, places[first])
        if not moved and any(state.writes_over(reader, known.made_by) for reader in later):
            return  # which must go on in its memory
        for share in constants.KEPT_SHARES:
            chain = Chain(self._places, state, places[first], round(size * share), moved)
            offer = self._offer(value, place, later, chain)
            if offer is not None:
                yield offer
            if not chain.had_choice:
                return

    def _offer(self, value: int, place: int, later: list[int], chain: Chain) -> Offer | None:
        """A value dropped at a place and made again, or only then, for those that read it later."""
        state, places = self._state, self._places.of
        rewired: dict[int, tuple[int, ...]] = {}
        if chain.moves and not all(chain.remake(node, value) is not None for node in chain.moves):
            return None
        for reader in () if chain.moves else later:
            operands: list[int] = []
            for operand in state.operands[reader]:
                is_old = value in state.holds[operand] and places[operand] < chain.place
                made = chain.remake(operand, value) if is_old else operand
                if made is None:
                    return None
                operands.append(made)
            rewired[reader] = tuple(operands)
        flow = state.flow
        if rewired and flow.values[value].made_by not in [node for node, _ in chain.clones]:
            return None  # who reads it later does so by what runs later still
        changes = self._changes(value, place, chain)
        if sum(more for start, more in changes if start <= place) >= 0:
            return None
        instructions = [state.instruction(node) for node, _ in chain.clones]
        price = self._costs.price(instructions)
        weight = sum(map(self._costs.weight, instructions))
        maker = flow.values[value].made_by
        before = state.order[chain.place]
        step = Step(value, maker, before, tuple(chain.clones), chain.moved, rewired)
        size = flow.size(value) if chain.moves else 0
        change = sum(more for _, more in changes)
        there = self._base(chain.place) + change + chain.most_alive() + size
        return Offer(step, price, weight + 1, chain.place, changes, there)

    def _changes(self, value: int, place: int, chain: Chain) -> tuple[tuple[int, int], ...]:
        """Places from which on bytes are freed, or kept, up to where the clones are."""
        flow, places = self._state.flow, self._places.of
        known = flow.values[value]
        read = max([places[one] for one in known.readers if places[one] <= place], default=-1)
        freed = places[known.made_by] if chain.moves else max(places[known.made_by], read) + 1
        if not chain.moves and self._places.is_taken_over(value, read):
            freed = read
        kept = [
            (self._places.last[other] + 1, flow.size(other))
            for other in sorted(chain.kept)
            if self._places.last[other] < chain.place
        ]
        return tuple(sorted([(freed, -flow.sizes[known.buffer]), *kept]))

    def _base(self, place: int) -> int:
        """Bytes alive right before a place, or somewhat more."""
        state, levels = self._state, self._levels
        flow, node = state.flow, state.order[place]
        made = sum([flow.size(value) for value in flow.made_by[node]])
        shared = [flow.size(value) for value, _ in flow.shares.get(node, ())]
        return min(levels[place - 1], levels[place] - made + sum(shared))
