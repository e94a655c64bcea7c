"""The choice of a value to recompute: the one that frees most for what it costs.

To recompute a value right before its next reader after the peak, its operands are read where they
are alive, and otherwise recomputed as well, or kept alive where that is small. The step is taken
that lowers what is above the target most per operation and byte; never one that raises the peak.
What is alike, as in the layers of an unrolled model, is one decision: steps of the same kind are
taken together, as many as the target asks for.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.opt import constants
from hlomem.opt.remat.clones import apply_step
from hlomem.opt.remat.offers import Offer, Offers
from hlomem.opt.remat.state import State, above

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
    offers = Offers(state, levels, costs)
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
    offers: Sequence[Offer],
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


def _clones(state: State, offer: Offer) -> list[HloInstruction]:
    """The originals of what an offer recomputes."""
    return [state.instruction(node) for node, _ in offer.step.clones]


class _Taking:
    """Steps taken in addition to one, each apart from all others that are taken."""

    def __init__(self, choice: Choice, taken: Offer, floor: int, allows: Allows) -> None:
        self.choice = choice
        self._steps = [taken]
        self._floor = floor
        self._allows = allows

    def take_alike(self, others: Sequence[Offer]) -> None:
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

    def take_others(self, others: Sequence[Offer]) -> None:
        """A few that promise nearly as much, one after another."""
        for other in others[: constants.STEPS_AT_ONCE]:
            choice = self.choice
            if max(choice.levels) > self._floor and self._may_take(other, self._steps):
                after = apply_step(choice.state, other.step)
                made = Choice(after, after.levels(), choice.price + other.price)
                self._keep(made, [*self._steps, other])

    def _may_take(self, other: Offer, steps: Sequence[Offer]) -> bool:
        if not all(other.step.is_apart(one.step) for one in steps):
            return False
        state = self.choice.state
        return self._allows([clone for one in (*steps, other) for clone in _clones(state, one)])

    def _keep(self, made: Choice, steps: list[Offer]) -> None:
        """Take what is better."""
        was = self.choice.levels
        is_better = above(made.levels, self._floor) < above(was, self._floor)
        if is_better and max(made.levels) <= max(was):
            self.choice, self._steps = made, steps


def _kind(state: State, offer: Offer) -> tuple[object, ...]:
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


def _is_harmless(levels: list[int], offer: Offer, peak: int) -> bool:
    """Whether an offer lifts nothing to the peak, as far as can be told without making it."""
    for start, end, change in _stretches(offer):
        if change > 0 and start < end and max(levels[start:end]) + change >= peak:
            return False
    return offer.there < peak


def _gain(levels: list[int], offer: Offer, target: int) -> int:
    """Bytes above a target that an offer takes away, over all places."""
    return sum(
        above(levels[start:end], target) - above(levels[start:end], target - change)
        for start, end, change in _stretches(offer)
    )


def _stretches(offer: Offer) -> Iterator[tuple[int, int, int]]:
    """The first and last step of each change that an offer makes, and its bytes."""
    starts = [start for start, _ in offer.changes]
    changes = accumulate(more for _, more in offer.changes)
    return zip(starts, [*starts[1:], offer.end], changes, strict=True)
