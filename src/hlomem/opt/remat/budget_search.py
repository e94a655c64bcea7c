"""Single values recomputed until a program fits, each state that counts planned exactly.

Starts are the program as it is, and cut at its peak for a price (`cut.py`). From each, single
values are recomputed (`greedy.py`) until a model that packs nothing (`state.py`) meets the budget,
and clones that were not needed are taken back (`clones.py`). The rest is planned, also in an
order of its own; the model's error is corrected, and asked of it in addition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.base.gc_pause import collector_off
from hlomem.hlo.schedule import Schedule
from hlomem.opt import constants
from hlomem.opt.candidate import Candidate, count_instructions, planned, room_for, start_text
from hlomem.opt.goal import AS_IS, Budget, WorkLeft
from hlomem.opt.orders.cost import costs_of
from hlomem.opt.orders.flow import flows_of
from hlomem.opt.orders.model import levels_of
from hlomem.opt.orders.one_computation import construct
from hlomem.opt.orders.planned_orders import in_orders, temporary_bytes
from hlomem.opt.orders.search import find_orders
from hlomem.opt.remat.clones import relax, settle
from hlomem.opt.remat.cut import cut_at_peak
from hlomem.opt.remat.edit import Edit, apply_edit, orders_by_name
from hlomem.opt.remat.greedy import choose
from hlomem.opt.remat.state import State, above, anchor, start_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.pipeline import Stages


def find_single(candidate: Candidate, goal: Budget) -> list[Candidate]:
    """Programs with single values recomputed until the budget is met, all that were planned."""
    with collector_off():
        return _Search(candidate, goal).run()


class _Planned(NamedTuple):
    state: State
    stages: Stages

    @property
    def size(self) -> int:
        return temporary_bytes(self.stages)


class _Search:
    def __init__(self, start: Candidate, goal: Budget) -> None:
        self._start = start
        self._stages = start.plan
        self._rules = start.given.rules
        self._target = room_for(self._stages, goal.limit)
        self._budget = goal.work or WorkLeft(self._rules.effort, start.given.clock)
        self._costs = costs_of(self._stages.options.machine)
        entry = self._stages.schedule.sequence(self._stages.module.entry)
        self._program_price = self._costs.price(entry)
        self._max_price = goal.max_price
        self._points: list[Candidate] = []
        self._orders = orders_by_name(self._stages)

    def run(self) -> list[Candidate]:
        """Go down to the target from every start, as far as that is possible."""
        machine = self._stages.options.machine
        ways = [False, True] if self._start.has_clock else [True]
        for weighs_time in ways if self._start.temporaries > self._target else ():
            self._costs = costs_of(machine, weighs_time=weighs_time)
            for start in self._starts():
                if self._is_cheap() or self._budget.is_spent:
                    break
                self._pursue(*start)
        return self._points

    def _starts(self) -> Iterator[tuple[State, int, int]]:
        """The program in its order and in another, as it is and cut, with level and plan."""
        begun: dict[bool, tuple[Stages, State] | None] = {}
        for start in self._budget.work.starts:
            if start.is_lowered not in begun:
                stages = self._lowered() if start.is_lowered else self._stages
                begun[start.is_lowered] = (
                    (stages, start_state(stages, self._rules.scopes)) if stages else None
                )
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
        if self._rules.max_slowdown > 1:
            return None
        may_reorder = self._rules.may_reorder_collectives
        return lower_all(self._stages, self._target, may_reorder_collectives=may_reorder)

    def _pursue(self, state: State, level: int, size: int) -> None:
        """Go down from a start, plan, and correct: the model says `level` of a plan's size."""
        least, margin = size, constants.PLAN_MARGIN
        for number in range(self._budget.work.rounds + constants.MORE_ROUNDS):
            is_last = number >= self._budget.work.rounds
            if is_last and size > constants.NEARLY * self._target:
                return
            margin -= constants.MORE_MARGIN / 4 if is_last else 0
            wanted = round(self._target * level / size * margin)
            state = self._descend(state, wanted)
            reached = max(state.levels())
            state = relax(state, self._costs, max(wanted, reached))
            if reached <= wanted:
                state = self._refine(state, wanted)
            if self._is_dear(state) or not state.clone_nodes():
                return
            planned = self._plan(state)
            is_near = planned.size <= constants.NEAR * self._target or reached > wanted
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
                margin -= constants.MORE_MARGIN
            least = min(least, size)

    def _refine(self, state: State, wanted: int) -> State:
        """The state, or a cheaper one found by taking back too much and going down again."""
        for more in self._budget.work.detours:
            if self._price(state) <= constants.CHEAP * self._program_price:
                break
            other = self._descend(relax(state, self._costs, round(wanted * more)), wanted)
            if max(other.levels()) <= wanted:
                other = relax(other, self._costs, wanted)
                if self._price(other) < self._price(state):
                    state = other
        return state

    def _cheapest(self) -> int | None:
        """The price of the cheapest that fits, or the most that it may be."""
        spent = self._start.price
        fits = [one.price - spent for one in self._points if one.temporaries <= self._target]
        known = [self._max_price] if self._max_price is not None else []
        return min([*fits, *known], default=None)

    def _is_dear(self, state: State) -> bool:
        """Whether a state will cost no less than something that fits."""
        cheapest = self._cheapest()
        return cheapest is not None and self._price(state) >= constants.HOPE * cheapest

    def _is_cheap(self) -> bool:
        cheapest = self._cheapest()
        return cheapest is not None and cheapest <= constants.CHEAP * self._program_price

    def _loosen(self, planned: _Planned) -> None:
        """Take back more clones where a plan leaves room."""
        for _ in range(self._budget.work.rounds):
            wanted = round(self._target * max(planned.state.levels()) / planned.size)
            state = relax(planned.state, self._costs, wanted)
            saved = self._price(planned.state) - self._price(state)
            if saved <= constants.LEAST_LOOSENED * self._program_price or self._budget.is_spent:
                return
            planned = self._plan(state)
            if planned.size > self._target:
                return

    def _descend(self, state: State, wanted: int) -> State:
        """The state after steps down to a level, as far as they help and do not cost too much."""
        levels = state.levels()
        cheapest, added = self._cheapest(), 0
        while self._budget.may_step and max(levels, default=0) > wanted:
            self._budget.take_step(len(state.order))
            choice = choose(state, levels, self._costs, wanted)
            if choice is None or (cheapest is not None and added > constants.TOO_MUCH * cheapest):
                break
            state, levels = choice.state, choice.levels
            added += choice.price
        return state

    def _price(self, state: State) -> int:
        return self._costs.price(state.clones())

    def _plan(self, state: State) -> _Planned:
        self._budget.take_plan()
        edit = state.edit(self._orders)
        stages = plan_edit(self._stages, edit)
        self._note(state, edit, stages)
        return _Planned(anchor(state, stages), stages)

    def _order(self, planned: _Planned) -> _Planned:
        """The program in a better order, if one is found without much work."""
        state, stages = planned
        self._budget.take_order(count_instructions(stages))
        orders = find_orders(stages, self._rules._replace(effort="low"))
        if not orders:
            return planned
        ordered = in_orders(stages, orders)
        self._orders = orders_by_name(ordered)
        state = anchor(state, ordered)
        self._note(state, state.edit(self._orders), ordered)
        return _Planned(state, ordered)

    def _note(self, state: State, edit: Edit, stages: Stages) -> None:
        if edit.clones:
            start = self._start
            point = replace(
                planned(start.given, stages),
                stages=None,
                changes=start.changes,
                edit=edit,
                flops=start.flops + self._costs.total(state.clones()),
                foreseen_time=start.time + self._price(state) if start.has_clock else None,
                stacks=start.stacks,
                clones=start.clones + len(edit.clones),
            )
            self._points.append(point)


def plan_edit(stages: Stages, edit: Edit) -> Stages:
    return start_text(apply_edit(stages.module, edit), stages.options)


def lower_all(stages: Stages, target: int, *, may_reorder_collectives: bool) -> Stages | None:
    """The program in an order with less above a number, over all nodes; None if not much better.

    Recomputation pays for every node that is above the number, not for the peak alone.
    """
    builder = flows_of(stages, may_reorder_collectives=may_reorder_collectives)
    entry = stages.module.entry
    flow = builder.build(entry, builder.peaks())
    given = levels_of(flow, range(len(flow.nodes)))
    wanted = round(target * max(given, default=0) / max(temporary_bytes(stages), 1))
    best, most = None, (1 - constants.LEAST_LOWERED) * above(given, wanted)
    for candidate in construct(flow, {}, lambda _: True):
        left = above(levels_of(flow, candidate.order), wanted)
        if left < most:
            best, most = candidate.order, left
    if best is None:
        return None
    return stages.rescheduled(Schedule({entry: [flow.nodes[node] for node in best]}))
