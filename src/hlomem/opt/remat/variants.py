"""Variants of a program that keep less, from the cheapest to the smallest.

In: the stages of a plan. Out: `Variant`s, each planned. For every price of `PRICES`, all pairs of
loops stack what is worth it (`loop_choice.py`), one pair after another, each found anew in what the
last change left. Then what is alive at the peak is cut (`cut.py`), and again at the peak that is
left, as long as that helps. What cannot be written, or computes something else by the judges, is no
variant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import EditError
from hlomem.opt.checks.edit import find_edit_problems
from hlomem.opt.checks.equivalence import find_meaning_problems
from hlomem.opt.loops.choice import kept_stacks, plan_loops
from hlomem.opt.loops.edit import apply_loop_plan
from hlomem.opt.loops.pairs import find_pairs
from hlomem.opt.orders.effects import Effects
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.remat.cut import cut_at_peak
from hlomem.opt.remat.edit import apply_edit
from hlomem.opt.remat.flops import Costs
from hlomem.opt.remat.prune_clones import settle
from hlomem.opt.remat.state import orders_by_name, start_state
from hlomem.pipeline import in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloComputation, HloModule
    from hlomem.opt.loops.choice import LoopPlan
    from hlomem.pipeline import Stages

PRICES = (4, 16, 64, 128, 256, 1024, 0)
"""Operations and bytes touched that a byte is worth; 0 stands for any number."""
MAX_PAIRS = 8
"""Pairs of loops that are changed in one program."""
MAX_CUTS = 3
"""Cuts of one program, one at the peak that another left."""


class Change(NamedTuple):
    """One of the changes on the way to a variant."""

    module: HloModule
    """The program after it."""
    is_of_loops: bool
    """Whether loops stack other values now; else instructions are there twice."""


class Variant(NamedTuple):
    """A program that keeps less than the given one."""

    changes: tuple[Change, ...]
    stages: Stages
    flops: int
    """Operations of the whole program."""
    stacks: int = 0
    """Stacks that are gone, those that came in their place taken off."""
    clones: int = 0
    """Other instructions that are computed again."""


def program_flops(stages: Stages) -> int:
    """Operations of a program, loops as often as they are known to run."""
    return Costs(stages.options.machine.size_of).total(stages.module.entry.instructions)


def iter_variants(stages: Stages, price: int) -> Iterator[Variant]:
    """Variants for a price, each smaller than the one before, or of other loops."""
    variant = Variant((), stages, 0)
    looped = change_loops(stages, price)
    if looped is not None:
        variant = looped
        yield variant
    for _ in range(MAX_CUTS):
        cut = _cut(variant, price) or cut_inside(variant, price)
        if cut is None:
            return
        variant = cut
        yield variant


def change_loops(stages: Stages, price: int) -> Variant | None:
    """The program with all pairs of loops changed for a price; None where none is."""
    return _Loops(stages, price).run()


def judge_changes(given: HloModule, changes: tuple[Change, ...]) -> list[str]:
    """Problems of changes, each judged by what it followed."""
    before = given
    for change in changes:
        after = change.module
        judge = find_meaning_problems if change.is_of_loops else find_edit_problems
        problems = judge(before, after)
        if problems:
            return problems
        before = after
    return []


def cut_inside(variant: Variant, price: int) -> Variant | None:
    """The variant cut within the loop that it needs most in, if there is one."""
    state = start_state(variant.stages)
    body: HloComputation | None = None
    while True:
        levels = state.levels()
        hungriest = state.instruction(levels.index(max(levels)))
        if hungriest.opcode != "while":
            return None if body is None else _cut(variant, price, body)
        body = hungriest.called_computations[0]
        state = start_state(variant.stages, computation=body)


def _cut(variant: Variant, price: int, body: HloComputation | None = None) -> Variant | None:
    """The variant cut at its peak, or at that of a loop's body, if that is smaller."""
    stages = variant.stages
    costs = Costs(stages.options.machine.size_of)
    state = cut_at_peak(start_state(stages, computation=body), costs, price)
    if state is None:
        return None
    edit = settle(state).edit(orders_by_name(stages))
    module = apply_edit(stages.module, edit)
    after = start_stages(module, stages.options, order_lists=in_text_order)
    if temporary_bytes(after) >= temporary_bytes(stages):
        return None
    return Variant(
        (*variant.changes, Change(module, is_of_loops=body is not None)),
        after,
        program_flops(after),
        variant.stacks,
        variant.clones + len(edit.clones),
    )


class _Loops:
    """All pairs of loops changed for a price."""

    def __init__(self, stages: Stages, price: int) -> None:
        self._given = stages
        self._price = price
        self._done: set[tuple[str, str]] = set()
        self._stacks = 0

    def run(self) -> Variant | None:
        """The program with all loops changed; None where none is."""
        stages = self._given
        changes: list[Change] = []
        for _ in range(MAX_PAIRS):
            module = self._change_one(stages)
            if module is None:
                break
            changes.append(Change(module, is_of_loops=True))
            stages = start_stages(module, self._given.options, order_lists=in_text_order)
        if not changes:
            return None
        return Variant(tuple(changes), stages, program_flops(stages), self._stacks)

    def _change_one(self, stages: Stages) -> HloModule | None:
        size_of = stages.options.machine.size_of
        costs, effects = Costs(size_of), Effects(stages.call_graph)
        for pair in find_pairs(stages.module):
            names = pair.first.instruction.name, pair.second.instruction.name
            if names in self._done:
                continue
            self._done.add(names)
            plan = plan_loops(pair, costs, size_of, effects, self._price)
            if plan is not None:
                try:
                    module = apply_loop_plan(stages.module, plan)
                except EditError:
                    continue
                self._stacks += _count_gone(plan)
                return module
        return None


def _count_gone(plan: LoopPlan) -> int:
    return len(plan.dropped) - (len(plan.stored) - len(kept_stacks(plan)))
