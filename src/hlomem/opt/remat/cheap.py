"""Values recomputed where that is almost free: a share of a program's work, and no more.

Loops come first (`loops/change.py`); then values are dropped at the peak one by one and recomputed
before their next reader (`greedy.py`), cheapest first, until the share is spent. Where results can
be declared to be written over operands (`over.py`), values are dropped as if they were.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.base.gc_pause import collector_off
from hlomem.opt.candidate import Candidate, count_instructions, edit_of, planned
from hlomem.opt.constants import (
    LARGE_PEAK,
    LEAST_STEPS,
    MAX_CHOICES,
    MAX_FAILED_PRICES,
    MAX_STEPS,
    MIDDLE_PEAK,
    NEXT_PEAK,
)
from hlomem.opt.loops.change import change_loops
from hlomem.opt.loops.pairs import find_pairs
from hlomem.opt.orders.cost import Times, costs_of, module_time
from hlomem.opt.orders.planned_orders import in_orders, temporary_bytes
from hlomem.opt.orders.search import find_orders
from hlomem.opt.remat.budget_search import plan_edit
from hlomem.opt.remat.cut import cut, cut_inside
from hlomem.opt.remat.edit import Edit, orders_by_name
from hlomem.opt.remat.greedy import choose
from hlomem.opt.remat.over import find_overs, with_overs, write_over
from hlomem.opt.remat.state import State, start_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.opt.goal import Share
    from hlomem.pipeline import Stages


class Way(NamedTuple):
    """How values are compared that could be dropped."""

    next_peak: float = NEXT_PEAK
    """The share of the peak above which what a value frees counts: less prefers large values."""
    weighs_time: bool = True
    """Whether by the time they take, where speeds are known; else by operations and bytes."""


USUAL_WAY = Way()
TRIED_WAYS = (USUAL_WAY, Way(LARGE_PEAK), Way(MIDDLE_PEAK, weighs_time=False))
"""Different programs for a compiler to plan."""


def find_cheap(candidate: Candidate, goal: Share, way: Way = USUAL_WAY) -> Candidate | None:
    """The smallest program that was found within a share; None where nothing is smaller."""
    with collector_off():
        return _Search(candidate, goal.share, way).run()


class _Search:
    def __init__(self, start: Candidate, share: float, way: Way) -> None:
        self._way = way
        self._start = start
        self._given = start.given
        self._machine = start.options.machine
        self._rules = start.given.rules._replace(effort="low", max_slowdown=1.0)
        self._time = module_time(start.given.stages.module, self._machine)
        self._max_flops = int(start.given.flops * share)
        self._max_time = int(self._time * share)

    def run(self) -> Candidate | None:
        """Loops first, then values at the peak of what that leaves."""
        looped = self._change_loops()
        start = looped or self._start
        found = [start, *self._drop(start)]
        best = min(found, key=lambda one: one.temporaries)
        best = write_over(best) or best
        return best if best.temporaries < self._start.temporaries else None

    def _change_loops(self) -> Candidate | None:
        """The program whose loops stack least within the share, in an order of its own."""
        best: Candidate | None = None
        start = self._start
        if not any(find_pairs(start.plan.module)):
            return None
        failed = 0
        for price in start.prices:
            if self._given.clock.is_over:
                break
            made = change_loops(start, price) or cut(start, price) or cut_inside(start, price)
            if made is None or made.changes[-1].kind != "loops":
                continue  # a byte is worth more next
            if made is best:
                continue
            if self._is_refused(made):
                failed += 1
                if failed > MAX_FAILED_PRICES:
                    break
            elif best is None or made.temporaries < best.temporaries:
                best = made
        if best is None:
            return None
        return self._planned(best, self._reordered(best.plan))

    def _is_refused(self, made: Candidate) -> bool:
        """Whether a program costs more than the share, or may round otherwise."""
        return self._is_dear(made) or (self._rules.exact and bool(made.rounding_problems()))

    def _is_dear(self, made: Candidate) -> bool:
        time = module_time(made.plan.module, self._machine)
        return self._is_more(made.flops, time - self._time)

    def _is_more(self, flops: int, time: int) -> bool:
        """Whether that is more than the share: of both, where time is not known by measurement."""
        if time > self._max_time:
            return True
        return not self._start.has_measured_clock and flops > self._max_flops

    def _reordered(self, stages: Stages) -> Stages:
        """The program in a better order, if one is found at little cost."""
        self._given.clock.spend(count_instructions(stages))
        return in_orders(stages, find_orders(stages, self._rules))

    # Values at the peak.

    def _drop(self, start: Candidate) -> Iterator[Candidate]:
        """The program with values of the peak recomputed; if that helps, in a better order."""
        given = start_state(start.plan, self._rules.scopes)
        overs = find_overs(start.plan, given.flow)
        given = replace(given, flow=with_overs(given.flow, overs)) if overs else given
        state, flops = self._descend(start, given)
        if state is given:
            return
        edit = state.edit(orders_by_name(start.plan))
        edited = plan_edit(start.plan, edit)
        start = replace(start, flops=start.flops + flops)
        if overs or temporary_bytes(edited) < start.temporaries:
            yield self._planned(start, edited, edit)
            yield self._planned(start, self._reordered(edited), edit)

    def _descend(self, start: Candidate, state: State) -> tuple[State, int]:
        """Steps within what is left of the share, to where least is alive; operations they add."""
        costs = costs_of(self._machine, weighs_time=self._way.weighs_time)
        times = Times(self._machine)
        spent = start.flops
        long = module_time(start.plan.module, self._machine) - self._time

        def allows(made: list[HloInstruction], more: Sequence[HloInstruction]) -> bool:
            clones = [*made, *more]
            time = long + sum(map(times.of, clones))
            return not self._is_more(spent + costs.total(clones), time)

        levels = state.levels()
        least = max(levels, default=0)
        lowest, added = state, 0
        for _ in range(min(MAX_STEPS, MAX_CHOICES // max(len(state.order), 1))):
            choice = choose(
                state,
                levels,
                costs,
                round(least * self._way.next_peak),
                partial(allows, state.clones()),
            )
            if choice is None:
                break
            state, levels = choice.state, choice.levels
            level = max(levels)
            if level < least * (1 - LEAST_STEPS):
                lowest, least, added = state, level, costs.total(state.clones())
        return lowest, added

    def _planned(self, start: Candidate, stages: Stages, edit: Edit | None = None) -> Candidate:
        """A program as it is planned, in the order it was planned in."""
        return replace(
            planned(self._given, stages),
            changes=start.changes,
            edit=edit_of(stages, edit),
            flops=start.flops,
            stacks=start.stacks,
            clones=start.clones + (len(edit.clones) if edit is not None else 0),
        )
