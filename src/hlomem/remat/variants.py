"""Variants of a program whose loops stack less, from the cheapest to the smallest.

In: the stages of a plan. Out: `Variant`s, each planned. For every price of `loop_choice.PRICES` all
pairs of loops are changed, one after another, each found anew in what the last change left. What
cannot be written, or is judged to compute something else, is no variant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.pipeline import in_text_order, start_stages
from hlomem.remat.flops import Costs
from hlomem.remat.loop_choice import PRICES, plan_loops
from hlomem.remat.loop_edit import apply_loop_plan
from hlomem.remat.loop_remake import LoopEditError
from hlomem.remat.loops import find_pairs
from hlomem.remat.meaning import find_meaning_problems
from hlomem.schedule.effects import Effects

if TYPE_CHECKING:
    from hlomem.pipeline import Stages
    from hlomem.remat.loop_choice import LoopPlan

MAX_PAIRS = 8
"""Pairs of loops that are changed in one program."""


class Variant(NamedTuple):
    """A program whose loops stack less."""

    text: str
    stages: Stages
    flops: int
    """Operations of the whole program."""
    stacks: int
    """Stacks that are gone, those that came in their place taken off."""


def find_variants(stages: Stages) -> list[Variant]:
    """Variants of a program, fewer operations first; none where no loop stacks for another."""
    found: dict[str, Variant] = {}
    if not find_pairs(stages.module):
        return []
    for price in PRICES:
        variant = _Search(stages, price).run()
        if variant is not None:
            found.setdefault(variant.text, variant)
    return sorted(found.values(), key=lambda variant: variant.flops)


def program_flops(stages: Stages) -> int:
    """Operations of a program, loops as often as they are known to run."""
    return Costs(stages.options.machine.size_of).total(stages.module.entry.instructions)


class _Search:
    def __init__(self, stages: Stages, price: int) -> None:
        self._given = stages
        self._price = price
        self._done: set[tuple[str, str]] = set()
        self._stacks = 0

    def run(self) -> Variant | None:
        """The program with all loops changed; None where none can be, or it is not the same."""
        stages, text = self._given, ""
        for _ in range(MAX_PAIRS):
            changed = self._change_one(stages)
            if changed is None:
                break
            text = changed
            options = self._given.options
            stages = start_stages(hlo.parse(text), options, order_lists=in_text_order)
        if not text or find_meaning_problems(self._given.module, stages.module):
            return None
        return Variant(text, stages, program_flops(stages), self._stacks)

    def _change_one(self, stages: Stages) -> str | None:
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
                    text = apply_loop_plan(stages.module, plan)
                except LoopEditError:
                    continue
                self._stacks += self._count(plan)
                return text
        return None

    def _count(self, plan: LoopPlan) -> int:
        kept = {stack.source for stack in plan.pair.stacks if stack not in plan.dropped}
        return len(plan.dropped) - sum(value not in kept for value in plan.stored)
