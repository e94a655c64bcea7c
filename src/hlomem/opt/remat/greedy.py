"""The choice of a value to recompute: the one that frees most for what it costs.

To recompute a value right before its next reader after the peak, its operands are read where they
are alive, and otherwise recomputed as well, or kept alive where that is small. The step is taken
that lowers what is above the target most per operation and byte; never one that raises the peak.
What is alike, as in the layers of an unrolled model, is one decision: steps of the same kind are
taken together, as many as the target asks for.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.opt import constants
from hlomem.opt.remat.clones import apply_step
from hlomem.opt.remat.state import FORWARDS, State, Step, above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.opt.orders.cost import Costs


Allows: TypeAlias = "Callable[[Sequence[HloInstruction]], bool]"
"""A question: may all of these be recomputed?"""


class Choice(NamedTuple):
    state: State
    levels: list[int]
    """Of the state."""
    price: int
    """Its cost."""


class _Offer(NamedTuple):
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


def choose(
    state: State,
    levels: list[int],
    costs: Costs,
    target: int,
    allows: Allows = lambda _: True,
) -> Choice | None:
    """The best step towards a number of bytes; None where none helps whose clones are allowed."""
    peak = max(levels, default=0)
    full = [place for place, level in enumerate(levels) if level == peak]
    offers = _Offers(state, levels, costs)
    for at in dict.fromkeys((full[0], full[-1])):
        for least in (constants.LEAST_SHARE * peak, (peak - target) / constants.MAX_STEPS):
            found = {offer.step.key: offer for offer in offers.at(at, least)}
            choice = _take_best(state, levels, list(found.values()), target, allows)
            if choice is not None:
                return choice
    return None


def _take_best(
    state: State,
    levels: list[int],
    offers: Sequence[_Offer],
    target: int,
    allows: Allows,
) -> Choice | None:
    """The step that lowers most per cost: above the target, else above what is near the peak."""
    peak = max(levels)
    harmless = [offer for offer in offers if _is_harmless(levels, offer, peak)]
    tried: set[int] = set()
    for floor in (target, *(round(peak * share) for share in constants.NEAR_PEAK)):
        ranked = [
            (_gain(levels, offer, floor) / offer.cost, -place)
            for place, offer in enumerate(harmless)
        ]
        ranked.sort(reverse=True)
        for rank, (gain, place) in enumerate(ranked[: constants.MAX_STEPS_TRIED]):
            if gain <= 0:
                break
            if place in tried:
                continue
            tried.add(place)
            offer = harmless[-place]
            if not allows(_clones(state, offer)):
                continue
            after = apply_step(state, offer.step)
            new = after.levels()
            if max(new) < peak or (max(new) == peak and new.count(peak) < levels.count(peak)):
                taking = _Taking(Choice(after, new, offer.price), offer, floor, allows)
                useful = [(more, harmless[-one]) for more, one in ranked[rank + 1 :] if more > 0]
                taking.take_alike([other for _, other in useful])
                taking.take_others([other for more, other in useful if 2 * more > gain])
                return taking.choice
    return None


def _clones(state: State, offer: _Offer) -> list[HloInstruction]:
    """The originals of what an offer recomputes."""
    return [state.instruction(node) for node, _ in offer.step.clones]


class _Taking:
    """Steps taken in addition to one, each apart from all others that are taken."""

    def __init__(self, choice: Choice, taken: _Offer, floor: int, allows: Allows) -> None:
        self.choice = choice
        self._steps = [taken]
        self._floor = floor
        self._allows = allows

    def take_alike(self, others: Sequence[_Offer]) -> None:
        """Those of the same kind at once, until the level that is asked for would be reached."""
        [first], state = self._steps, self.choice.state
        kind = _kind(state, first)
        wanted = -((self._floor - max(self.choice.levels)) // max(first.freed, 1))
        steps, price = [first], self.choice.price
        for other in others:
            if len(steps) > wanted:
                break
            if _kind(state, other) == kind and self._may_take(other, steps):
                state, price = apply_step(state, other.step), price + other.price
                steps.append(other)
        if len(steps) > 1:
            self._keep(Choice(state, state.levels(), price), steps)

    def take_others(self, others: Sequence[_Offer]) -> None:
        """A few that promise nearly as much, one after another."""
        for other in others[: constants.STEPS_AT_ONCE]:
            choice = self.choice
            if max(choice.levels) > self._floor and self._may_take(other, self._steps):
                after = apply_step(choice.state, other.step)
                made = Choice(after, after.levels(), choice.price + other.price)
                self._keep(made, [*self._steps, other])

    def _may_take(self, other: _Offer, steps: Sequence[_Offer]) -> bool:
        if not all(other.step.is_apart(one.step) for one in steps):
            return False
        state = self.choice.state
        return self._allows([clone for one in (*steps, other) for clone in _clones(state, one)])

    def _keep(self, made: Choice, steps: list[_Offer]) -> None:
        """Take what is better."""
        was = self.choice.levels
        is_better = above(made.levels, self._floor) < above(was, self._floor)
        if is_better and max(made.levels) <= max(was):
            self.choice, self._steps = made, steps


def _kind(state: State, offer: _Offer) -> tuple[object, ...]:
    """Equal for offers that recompute the same in other layers."""
    return tuple([_look(one) for one in _clones(state, offer)])


def _look(one: HloInstruction) -> tuple[object, ...]:
    """Equal for instructions that, as a rule, compute the same of other operands."""
    return (
        one.opcode,
        one.shape.text,
        tuple([operand.shape.text for operand in one.operands]),
        tuple([len(callee.instructions) for callee in one.called_computations]),
    )


def _is_harmless(levels: list[int], offer: _Offer, peak: int) -> bool:
    """Whether an offer lifts nothing to the peak, as far as can be told without making it."""
    for start, end, change in _stretches(offer):
        if change > 0 and start < end and max(levels[start:end]) + change >= peak:
            return False
    return offer.there < peak


def _gain(levels: list[int], offer: _Offer, target: int) -> int:
    """Bytes above a target that an offer takes away, over all places."""
    return sum(
        above(levels[start:end], target) - above(levels[start:end], target - change)
        for start, end, change in _stretches(offer)
    )


def _stretches(offer: _Offer) -> Iterator[tuple[int, int, int]]:
    """The first and last step of each change that an offer makes, and its bytes."""
    starts = [start for start, _ in offer.changes]
    changes = accumulate(more for _, more in offer.changes)
    return zip(starts, [*starts[1:], offer.end], changes, strict=True)


class _Offers:
    def __init__(self, state: State, levels: list[int], costs: Costs) -> None:
        self._state = state
        self._levels = levels
        self._costs = costs
        self.places = places = [-1] * len(state.origin)
        for place, node in enumerate(state.order):
            places[node] = place
        self._last = [
            len(places)
            if value.lives_on
            else max([places[reader] for reader in value.readers], default=-1)
            for value in state.flow.values
        ]
        self.intact_until = [
            min([places[writer] for writer in state.limits(node)], default=len(places))
            for node in range(len(places))
        ]
        """By node the first place at which a next value is written over what it holds."""
        self._there_until = [
            min([self._last[value] for value in held], default=len(places)) for held in state.holds
        ]
        self._there_until = list(map(min, self._there_until, self.intact_until))
        self._copies: dict[int, list[int]] = {}
        for node in state.clone_nodes():
            self._copies.setdefault(state.origin[node], []).append(node)

    def at(self, place: int, least: float) -> Iterator[_Offer]:
        """Steps that free something at a place, by values of more than so many bytes."""
        flow, places = self._state.flow, self.places
        for number, value in enumerate(flow.values):
            size = flow.sizes[value.buffer]
            if size <= least or value.made_by < 0 or self._last[number] <= place or value.lives_on:
                continue
            made_at = places[value.made_by]
            if not 0 <= made_at < place or not self._state.may_repeat(value.made_by):
                continue
            is_read = any(places[reader] == place for reader in value.readers)
            if not is_read or self._is_taken_over(number, place):
                yield from self._offers_of(number, place, size)

    def _offers_of(self, value: int, place: int, size: int) -> Iterator[_Offer]:
        """The ways to drop a value at a place, by how much of its operands is kept."""
        state, places = self._state, self.places
        known = state.flow.values[value]
        later = [reader for reader in known.readers if places[reader] > place]
        first = min(later, key=lambda reader: places[reader])
        moved = self._movable(value, places[first])
        if not moved and any(state.writes_over(reader, known.made_by) for reader in later):
            return  # which must go on in its memory
        for share in constants.KEPT_SHARES:
            chain = _Chain(self, state, places[first], round(size * share), moved)
            offer = self._offer(value, place, later, chain)
            if offer is not None:
                yield offer
            if not chain.had_choice:
                return

    def _offer(self, value: int, place: int, later: list[int], chain: _Chain) -> _Offer | None:
        """A value dropped at a place and made again, or only then, for those that read it later."""
        state, places = self._state, self.places
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
        return _Offer(step, price, weight + 1, chain.place, changes, there)

    def _changes(self, value: int, place: int, chain: _Chain) -> tuple[tuple[int, int], ...]:
        """Places from which on bytes are freed, or kept, up to where the clones are."""
        flow, places = self._state.flow, self.places
        known = flow.values[value]
        read = max([places[one] for one in known.readers if places[one] <= place], default=-1)
        freed = places[known.made_by] if chain.moves else max(places[known.made_by], read) + 1
        if not chain.moves and self._is_taken_over(value, read):
            freed = read
        kept = [
            (self._last[other] + 1, flow.size(other))
            for other in sorted(chain.kept)
            if self._last[other] < chain.place
        ]
        return tuple(sorted([(freed, -flow.sizes[known.buffer]), *kept]))

    def _is_taken_over(self, value: int, place: int) -> bool:
        """Whether what runs at a place may write its result over a value, once that is unread."""
        if place < 0:
            return False
        shares = self._state.flow.shares.get(self._state.order[place], ())
        return any(value in candidates for _, candidates in shares)

    def _base(self, place: int) -> int:
        """Bytes alive right before a place, or somewhat more."""
        state, levels = self._state, self._levels
        flow, node = state.flow, state.order[place]
        made = sum([flow.size(value) for value in flow.made_by[node]])
        shared = [flow.size(value) for value, _ in flow.shares.get(node, ())]
        return min(levels[place - 1], levels[place] - made + sum(shared))

    def _movable(self, value: int, place: int) -> list[int]:
        """The nodes that make and forward a value, if it is unread before a position; else none."""
        state, places = self._state, self.places
        maker = state.flow.values[value].made_by
        if any(state.flow.values[made].lives_on for made in state.flow.made_by[maker]):
            return []
        found = {maker}
        pending = [maker]
        while pending:
            early = {user for user in self._users[pending.pop()] if places[user] < place}
            if any(state.instruction(node).opcode not in FORWARDS for node in early):
                return []
            pending += early - found
            found |= early
        return sorted(found, key=lambda node: places[node])

    def is_read_once(self, node: int) -> bool:
        """Whether a node has one reader, and hands on nothing of another's."""
        return len(self._users[node]) == 1 and self._state.instruction(node).opcode not in FORWARDS

    @cached_property
    def _users(self) -> list[list[int]]:
        """By node those that it is an operand of, parts that are no temporaries included."""
        users: list[list[int]] = [[] for _ in self._state.origin]
        for node in self._state.order:
            for operand in set(self._state.operands[node]):
                users[operand].append(node)
        return users

    def find_copy(self, node: int, place: int) -> int | None:
        """The node or a clone of the same of which all is alive at a place, not written over."""
        places, until = self.places, self._there_until
        if places[node] < place <= until[node]:
            return node
        origin = self._state.origin[node]
        if node != origin and places[origin] < place <= until[origin]:
            return origin
        for copy in self._copies.get(origin, ()):
            if places[copy] < place <= until[copy]:
                return copy
        return None


class _Chain:
    """The nodes to recompute right before a position."""

    def __init__(
        self, offers: _Offers, state: State, place: int, kept_size: int, moves: Sequence[int]
    ) -> None:
        self._offers = offers
        self._state = state
        self.place = place
        self._kept_size = kept_size
        self.clones: list[tuple[int, tuple[int, ...]]] = []
        self.kept: set[int] = set()
        self.moves = moves
        """Nodes that are not cloned, but run here and nowhere else."""
        self.moved: dict[int, tuple[int, ...]] = {}
        self.had_choice = False
        """Whether an operand could have been kept as well as recomputed."""
        self._made: dict[int, int] = {}
        self._begun = 0
        """Clones that are made, or will be once their operands are."""

    def most_alive(self) -> int:
        """The most bytes that the clones need among themselves, each until its last reader."""
        flow = self._state.flow
        sizes = [sum([flow.size(value) for value in flow.made_by[node]]) for node, _ in self.clones]
        last = dict.fromkeys(range(len(sizes)), len(sizes))
        for reader, (_, operands) in enumerate(self.clones):
            for operand in operands:
                if operand < 0:
                    last[-1 - operand] = reader
        alive = most = 0
        for number, size in enumerate(sizes):
            over = [sizes[read] for read in self._taken_over(number) if last[read] == number]
            alive += size
            most = max(most, alive - min(size, max(over, default=0)))
            alive -= sum([sizes[read] for read in range(number) if last[read] == number])
        return most

    def _taken_over(self, number: int) -> Iterator[int]:
        """The clones that one may write its result over."""
        state = self._state
        node, operands = self.clones[number]
        over = {one for _, candidates in state.flow.shares.get(node, ()) for one in candidates}
        for original, operand in zip(state.operands[node], operands, strict=True):
            is_shared = not over.isdisjoint(state.holds[original])
            if operand < 0 and (is_shared or state.writes_over(node, original)):
                yield -1 - operand

    def remake(self, node: int, value: int) -> int | None:
        """The clone of what holds a value; None where it cannot be made."""
        if node in self._made:
            return self._made[node]
        state = self._state
        if not state.may_repeat(node):
            return None
        if node not in self.moves:
            self._begun += 1
        if self._begun > constants.MAX_CHAIN:
            self.had_choice = True  # it may have one further on
            return None
        operands: list[int] = []
        for operand in state.operands[node]:
            is_over = state.writes_over(node, operand)
            if is_over and node in self.moves and operand not in self.moves:
                self.kept.update(state.holds[operand])
                found: int | None = operand
            elif is_over and node not in self.moves and not self._offers.is_read_once(operand):
                return None
            # On the way to its maker, or written over in turn.
            elif operand in self.moves or value in state.holds[operand] or is_over:
                found = self.remake(operand, value)
            else:
                found = self._need(operand, value)
            if found is None:
                return None
            operands.append(found)
        if node in self.moves:
            self.moved[node] = tuple(operands)
            self._made[node] = node
            return node
        self.clones.append((node, tuple(operands)))
        self._made[node] = -len(self.clones)
        return self._made[node]

    def _need(self, node: int, value: int) -> int | None:
        """The node to read for an operand: the one there, a clone, or the one kept alive."""
        offers, place = self._offers, self.place
        found = offers.find_copy(node, place)
        if found is not None:
            return found
        state = self._state
        held = state.holds[node]
        may_repeat = state.may_repeat(node)
        if offers.intact_until[node] >= place and value not in held:
            self.had_choice = self.had_choice or may_repeat
            if not may_repeat or sum(map(state.flow.size, held)) <= self._kept_size:
                self.kept.update(held)
                return node
        return self.remake(node, value) if may_repeat else None
