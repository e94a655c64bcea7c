"""Values computed again where that is almost free: a share of a program's work, and no more.

In: the stages of a plan, and the share of its operations and of its modelled time that may be
added. Out: a `FreeProgram` that needs less, or None. Loops come first: what they stack is not
stacked any more as long as computing it again stays within the share (`variants.py`). Then, at the
peak, values are dropped one by one and computed again before their next reader (`choose.py`), the
cheapest first, until the share is spent. Steps are chosen by a model that packs nothing; the
program they lead to is planned exactly, in its own order and in one more. All limits count steps,
none counts seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.gc_pause import collector_off
from hlomem.hlo.schedule import running_computations
from hlomem.opt.loops.pairs import find_pairs
from hlomem.opt.orders.cost import Times
from hlomem.opt.orders.latency import module_time
from hlomem.opt.orders.planned_orders import in_orders, needed_bytes, temporary_bytes
from hlomem.opt.orders.search import improve
from hlomem.opt.remat.budget_search import plan_edit
from hlomem.opt.remat.edit import Edit
from hlomem.opt.remat.flops import Costs
from hlomem.opt.remat.greedy import choose
from hlomem.opt.remat.state import orders_by_name, start_state
from hlomem.opt.remat.variants import PRICES, Variant, iter_variants, program_flops

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hlomem.opt.orders.search import Orders
    from hlomem.opt.remat.state import State
    from hlomem.pipeline import Stages

MAX_STEPS = 64
"""Values that are dropped at the peak, at most."""
MAX_CHOICES = 24_000
"""Steps times nodes: what choosing may take in all."""
_NEXT_PEAK = 0.95
"""The share of the peak that steps aim at; of those offered, the one that lowers what is above it
most for its cost is taken."""


class FreeProgram(NamedTuple):
    """A program with values computed again, as it is planned."""

    variant: Variant
    """With the loops as they are now."""
    edit: Edit
    """The rest: clones, and the order of all."""
    temporaries: int
    total: int
    flops: int
    """Operations more than in the program as given, by our count."""
    program_flops: int
    """Operations of the program as given."""
    clones: int


def find_free(
    stages: Stages, orders: Orders, share: float, *, may_reorder_collectives: bool = False
) -> FreeProgram | None:
    """The smallest program that was found within a share; None where nothing is smaller.

    `orders` are those that were found for the program; the result must need less than they do.
    """
    with collector_off():
        return _Search(stages, share, may_reorder_collectives=may_reorder_collectives).run(orders)


class _Search:
    def __init__(self, stages: Stages, share: float, *, may_reorder_collectives: bool) -> None:
        self._stages = stages
        self._machine = stages.options.machine
        self._may_reorder = may_reorder_collectives
        self._flops = program_flops(stages)
        self._time = module_time(stages.module, self._machine)
        self._max_flops = int(self._flops * share)
        self._max_time = int(self._time * share)

    def run(self, orders: Orders) -> FreeProgram | None:
        """Loops first, then values at the peak of what that leaves."""
        start = in_orders(self._stages, orders)
        before = temporary_bytes(start)
        variant = self._change_loops(start) or Variant((), start, self._flops)
        found = [self._program(variant, variant.stages)] if variant.changes else []
        found += self._drop(variant)
        best = min(found, key=lambda program: program.temporaries, default=None)
        return best if best is not None and best.temporaries < before else None

    def _change_loops(self, stages: Stages) -> Variant | None:
        """The program whose loops stack least within the share, in an order of its own."""
        best: Variant | None = None
        if not any(find_pairs(stages.module)):
            return None
        for price in PRICES:
            variant = next(iter_variants(stages, price), None)
            if variant is None or not variant.changes[-1].is_of_loops or self._is_dear(variant):
                break
            best = variant
        return None if best is None else best._replace(stages=self._reordered(best.stages))

    def _is_dear(self, variant: Variant) -> bool:
        time = module_time(variant.stages.module, self._machine)
        too_long = time - self._time > self._max_time
        return too_long or variant.flops - self._flops > self._max_flops

    def _reordered(self, stages: Stages) -> Stages:
        """The program in a better order, if one is found at little cost."""
        found = improve(stages, "low", may_reorder_collectives=self._may_reorder)
        return in_orders(stages, found.orders)

    # Values at the peak.

    def _drop(self, variant: Variant) -> Iterator[FreeProgram]:
        """The program with values of the peak computed again; if that helps, in a better order."""
        given = start_state(variant.stages)
        state, flops = self._descend(variant, given)
        if state is given:
            return
        edit = state.edit(orders_by_name(variant.stages))
        edited = plan_edit(variant.stages, edit)
        variant = variant._replace(flops=variant.flops + flops)
        if temporary_bytes(edited) < temporary_bytes(variant.stages):
            yield self._program(variant, edited, edit)
            yield self._program(variant, self._reordered(edited), edit)

    def _descend(self, variant: Variant, state: State) -> tuple[State, int]:
        """Steps within what is left of the share, to where least is alive; operations they add."""
        costs, times = Costs(self._machine.size_of), Times(self._machine)
        spent = variant.flops - self._flops
        long = module_time(variant.stages.module, self._machine) - self._time
        levels = state.levels()
        least = max(levels, default=0)
        lowest, added = state, 0
        for _ in range(min(MAX_STEPS, MAX_CHOICES // max(len(state.order), 1))):
            choice = choose(state, levels, costs, round(least * _NEXT_PEAK))
            if choice is None:
                break
            clones = choice.state.clones()
            flops, time = spent + costs.total(clones), long + sum(map(times.of, clones))
            if flops > self._max_flops or time > self._max_time:
                break
            state, levels = choice.state, choice.levels
            level = max(levels)
            if level < least:
                lowest, least, added = state, level, flops - spent
        return lowest, added

    def _program(self, variant: Variant, stages: Stages, edit: Edit | None = None) -> FreeProgram:
        """A program as it is planned, in the order it was planned in."""
        clones = () if edit is None else edit.clones
        operands: Mapping[str, tuple[str, ...]] = {} if edit is None else edit.operands
        names = {
            computation.name: tuple(one.name for one in stages.schedule.sequence(computation))
            for computation in running_computations(stages.module)
        }
        return FreeProgram(
            variant,
            Edit(stages.module.entry.name, clones, operands, names),
            temporary_bytes(stages),
            needed_bytes(stages),
            variant.flops - self._flops,
            self._flops,
            len(clones),
        )
