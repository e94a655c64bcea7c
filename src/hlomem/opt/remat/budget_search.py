"""Recomputation until a program fits a number, each state that counts planned exactly.

In: the stages of a plan and the bytes its temporaries may take. Out: a `Fit`: the edit whose plan
fits for the least that was found, or else the smallest. Several starts are made: the program as it
is, and cut at its peak for a price (`cut.py`). From each, single values are computed again
(`choose.py`) until a model that counts bytes and packs nothing (`state.py`) says that the number is
reached, and clones that were not needed for it are taken back (`relax.py`). What is left is planned
as XLA plans it, also in an order of its own; what the model was wrong by is corrected
(`anchor.py`), and asked of it in addition. All limits count steps, none counts seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.gc_pause import collector_off
from hlomem.opt.orders.planned_orders import in_orders, needed_bytes, temporary_bytes
from hlomem.opt.orders.search import improve
from hlomem.opt.remat.calibration import anchor
from hlomem.opt.remat.cut import cut_at_peak
from hlomem.opt.remat.edit import Edit, apply_edit
from hlomem.opt.remat.flops import Costs
from hlomem.opt.remat.greedy import choose
from hlomem.opt.remat.prune_clones import relax, settle
from hlomem.opt.remat.reorder import lower_all
from hlomem.opt.remat.state import orders_by_name, start_state
from hlomem.pipeline import in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hlomem.opt.orders.search import Effort
    from hlomem.opt.remat.state import State
    from hlomem.pipeline import Stages

AS_IS = -1
"""In the place of a price: nothing is cut to begin with."""


class Start(NamedTuple):
    """A program to begin with."""

    price: int
    """For which it is cut at its peak, or `AS_IS`."""
    is_lowered: bool = False
    """Whether it is in the order of `reorder.py`."""


class Work(NamedTuple):
    """The work that an effort allows."""

    starts: tuple[Start, ...]
    rounds: int
    """Plans of what comes of a start, each with what the last was wrong by."""
    detours: tuple[float, ...]
    """How much more than the number is allowed on the way to something cheaper."""
    steps: int
    """Values that are computed again at most, or several at once, over all starts."""
    plans: int
    """Exact plans, and searches for an order, which are several."""


WORK: Mapping[Effort, Work] = {
    "low": Work((Start(AS_IS),), 3, (), 60, 8),
    "default": Work((Start(AS_IS), Start(AS_IS, is_lowered=True), Start(256)), 5, (), 240, 36),
    "high": Work(
        tuple(
            Start(price, is_lowered)
            for price in (AS_IS, 256, 16, 64, 4, 1024, 0)
            for is_lowered in (False, True)
        ),
        8,
        (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5),
        8000,
        500,
    ),
}
PLANS_OF_ORDER = 4
"""Plans that the search for an order is worth."""


class Budget:
    """The work that is left, of one effort, for all that is looked for in one program."""

    def __init__(self, effort: Effort) -> None:
        self.work = WORK[effort]
        self.steps = self.work.steps
        self.plans = self.work.plans

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is looked for."""
        return self.steps <= 0 or self.plans <= 0


_MARGIN = 0.999
"""How much less than the share that is missing is asked for after a plan that misses."""
_MORE = 0.02
"""How much less is asked for after a plan that is no smaller than another."""
_NEAR = 1.2
"""How much more than the number a plan may take for another order to be looked for at once."""
_LEAST_SAVING = 0.001
"""The share of a program's operations that is worth another plan."""
_HOPE = 1.25
"""How much more than something that fits may cost what clones can still be taken back of."""
_TOO_MUCH = 4
"""How much more than something that fits may be added on the way down."""
_CHEAP = 0.01
"""The share of a program's operations for which no other start is made."""


class Point(NamedTuple):
    """A program with some values computed again, planned."""

    edit: Edit
    temporaries: int
    """Bytes, as planned."""
    total: int
    """Bytes of all allocations, as planned."""
    flops: int
    """Operations more than in the program as given."""
    clones: int


class Fit(NamedTuple):
    """The outcome for a number."""

    before: int
    """Bytes of temporaries as given."""
    program_flops: int
    """Operations of the entry as given, by our count."""
    points: tuple[Point, ...]
    """All that were planned, in the order they were found."""
    best: Point | None
    """The cheapest that fits, else the smallest; None where none is smaller than what was given."""


class Allowed(NamedTuple):
    """The orders that may be looked for, as for `hlomem.opt.orders.search.improve`."""

    may_reorder_collectives: bool = False
    max_slowdown: float = 0.0


def fit(
    stages: Stages,
    target: int,
    max_flops: int | None = None,
    budget: Budget | None = None,
    allowed: Allowed | None = None,
) -> Fit:
    """Compute values again until the temporaries take no more than a number of bytes.

    `max_flops` are operations beyond which it is not worth it. What is spent is taken from
    `budget`, by default that of a default effort.
    """
    with collector_off():
        budget = budget or Budget("default")
        return _Search(stages, target, max_flops, budget, allowed or Allowed()).run()


class _Planned(NamedTuple):
    """A state and its plan."""

    state: State
    stages: Stages

    @property
    def size(self) -> int:
        return temporary_bytes(self.stages)


class _Search:
    def __init__(
        self,
        stages: Stages,
        target: int,
        max_flops: int | None,
        budget: Budget,
        allowed: Allowed,
    ) -> None:
        self._stages = stages
        self._target = target
        self._budget = budget
        self._allowed = allowed
        self._costs = Costs(stages.options.machine.size_of)
        entry = stages.schedule.sequence(stages.module.entry)
        self._program_flops = self._costs.total(entry)
        self._max_flops = max_flops
        self._points: list[Point] = []
        self._orders = orders_by_name(stages)

    def run(self) -> Fit:
        """Go down to the target from every start, as far as that is possible."""
        before = temporary_bytes(self._stages)
        if before > self._target:
            for start in self._starts():
                if self._is_cheap() or self._budget.is_spent:
                    break
                self._pursue(*start)
        smaller = [point for point in self._points if point.temporaries < before]
        fits = [point for point in smaller if point.temporaries <= self._target]
        best = min(
            fits or smaller,
            key=lambda point: point.flops if fits else point.temporaries,
            default=None,
        )
        return Fit(before, self._program_flops, tuple(self._points), best)

    def _starts(self) -> Iterator[tuple[State, int, int]]:
        """The program in its order and in another, as it is and cut, with level and plan."""
        begun: dict[bool, tuple[Stages, State] | None] = {}
        for start in self._budget.work.starts:
            if start.is_lowered not in begun:
                stages = self._lowered() if start.is_lowered else self._stages
                begun[start.is_lowered] = (stages, start_state(stages)) if stages else None
            known = begun[start.is_lowered]
            if known is None:
                continue
            stages, given = known
            cut: State | None = given
            if start.price != AS_IS:
                cut = cut_at_peak(given, self._costs, start.price)
            if cut is not None:
                self._orders = orders_by_name(stages)
                yield settle(cut), max(given.levels()), temporary_bytes(stages)

    def _lowered(self) -> Stages | None:
        """The program in an order with less above the number, where any order will do."""
        if self._allowed.max_slowdown:
            return None
        may_reorder = self._allowed.may_reorder_collectives
        return lower_all(self._stages, self._target, may_reorder_collectives=may_reorder)

    def _pursue(self, state: State, level: int, size: int) -> None:
        """Go down from a start, plan, and correct: the model says `level` of a plan's size."""
        least, margin = size, _MARGIN
        for _ in range(self._budget.work.rounds):
            wanted = round(self._target * level / size * margin)
            state = self._descend(state, wanted)
            reached = max(state.levels())
            state = relax(state, self._costs, max(wanted, reached))
            if reached <= wanted:
                state = self._refine(state, wanted)
            if self._is_dear(state) or not state.clone_nodes():
                return
            planned = self._plan(state)
            is_near = planned.size <= _NEAR * self._target or reached > wanted
            if planned.size > self._target and is_near:
                planned = self._order(planned)
            if planned.size <= self._target:
                self._loosen(planned)
                return
            state, level, size = planned.state, max(planned.state.levels()), planned.size
            is_stuck = reached > wanted and size >= least
            if self._budget.is_spent or is_stuck:
                return
            if size >= least:
                margin -= _MORE
            least = min(least, size)

    def _refine(self, state: State, wanted: int) -> State:
        """The state, or a cheaper one found by taking back too much and going down again."""
        for more in self._budget.work.detours:
            if self._flops(state) <= _CHEAP * self._program_flops:
                break
            other = self._descend(relax(state, self._costs, round(wanted * more)), wanted)
            if max(other.levels()) <= wanted:
                other = relax(other, self._costs, wanted)
                if self._flops(other) < self._flops(state):
                    state = other
        return state

    def _cheapest(self) -> int | None:
        """Operations that the cheapest adds that fits, or the most that it may."""
        fits = [point.flops for point in self._points if point.temporaries <= self._target]
        known = [self._max_flops] if self._max_flops is not None else []
        return min([*fits, *known], default=None)

    def _is_dear(self, state: State) -> bool:
        """Whether a state will cost no less than something that fits."""
        cheapest = self._cheapest()
        return cheapest is not None and self._flops(state) >= _HOPE * cheapest

    def _is_cheap(self) -> bool:
        """Whether something fits for next to nothing."""
        cheapest = self._cheapest()
        return cheapest is not None and cheapest <= _CHEAP * self._program_flops

    def _loosen(self, planned: _Planned) -> None:
        """Take back more clones where a plan leaves room."""
        for _ in range(self._budget.work.rounds):
            wanted = round(self._target * max(planned.state.levels()) / planned.size)
            state = relax(planned.state, self._costs, wanted)
            saved = self._flops(planned.state) - self._flops(state)
            if saved <= _LEAST_SAVING * self._program_flops or self._budget.is_spent:
                return
            planned = self._plan(state)
            if planned.size > self._target:
                return

    def _descend(self, state: State, wanted: int) -> State:
        """The state after steps until the model counts no more than wanted, or none helps.

        It ends early where they cost far more than something that fits.
        """
        levels = state.levels()
        cheapest, added = self._cheapest(), 0
        while self._budget.steps > 0 and max(levels, default=0) > wanted:
            self._budget.steps -= 1
            choice = choose(state, levels, self._costs, wanted)
            if choice is None or (cheapest is not None and added > _TOO_MUCH * cheapest):
                break
            state, levels = choice.state, choice.levels
            added += choice.flops
        return state

    def _flops(self, state: State) -> int:
        return self._costs.total(state.clones())

    def _plan(self, state: State) -> _Planned:
        self._budget.plans -= 1
        edit = state.edit(self._orders)
        stages = plan_edit(self._stages, edit)
        self._note(state, edit, stages)
        return _Planned(anchor(state, stages), stages)

    def _order(self, planned: _Planned) -> _Planned:
        """The program in a better order, if one is found without much work."""
        self._budget.plans -= PLANS_OF_ORDER
        state, stages = planned
        found = improve(
            stages,
            "low",
            may_reorder_collectives=self._allowed.may_reorder_collectives,
            max_slowdown=self._allowed.max_slowdown,
        )
        if not found.orders:
            return planned
        ordered = in_orders(stages, found.orders)
        self._orders = orders_by_name(ordered)
        state = anchor(state, ordered)
        self._note(state, state.edit(self._orders), ordered)
        return _Planned(state, ordered)

    def _note(self, state: State, edit: Edit, stages: Stages) -> None:
        point = Point(
            edit,
            temporary_bytes(stages),
            needed_bytes(stages),
            self._flops(state),
            len(edit.clones),
        )
        if edit.clones:
            self._points.append(point)


def plan_edit(stages: Stages, edit: Edit) -> Stages:
    """The plan of an edited program."""
    module = apply_edit(stages.module, edit)
    return start_stages(module, stages.options, order_lists=in_text_order)
