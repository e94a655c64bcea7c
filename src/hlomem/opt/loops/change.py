"""All pairs of loops of a program changed for a price, one after another (`choice.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.base.errors import EditError
from hlomem.opt.candidate import planned, start_text
from hlomem.opt.checks import Change
from hlomem.opt.constants import MAX_PAIRS
from hlomem.opt.loops.choice import kept_stacks, plan_loops
from hlomem.opt.loops.edit import apply_loop_plan
from hlomem.opt.loops.pairs import find_pairs
from hlomem.opt.orders.effects import Effects
from hlomem.opt.remat.flops import Costs, program_flops

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule
    from hlomem.opt.candidate import Candidate
    from hlomem.pipeline import Stages


def change_loops(candidate: Candidate, price: int) -> Candidate | None:
    """The program with all pairs of loops changed for a price; None where none is."""
    done: set[tuple[str, str]] = set()
    stages, stacks, changes = candidate.plan, 0, list(candidate.changes)
    for _ in range(MAX_PAIRS):
        changed = _change_one(stages, price, done)
        if changed is None:
            break
        module, gone = changed
        stacks += gone
        changes.append(Change(module, "loops"))
        stages = start_text(module, stages.options)
    if len(changes) == len(candidate.changes):
        return None
    return replace(
        planned(candidate.given, stages),
        changes=tuple(changes),
        flops=program_flops(stages) - candidate.given.flops,
        stacks=candidate.stacks + stacks,
        clones=candidate.clones,
    )


def _change_one(
    stages: Stages, price: int, done: set[tuple[str, str]]
) -> tuple[HloModule, int] | None:
    """The program with the first pair changed that is not done, and the stacks that are gone."""
    size_of = stages.options.machine.size_of
    costs, effects = Costs(size_of), Effects(stages.call_graph)
    for pair in find_pairs(stages.module):
        names = pair.first.instruction.name, pair.second.instruction.name
        if names in done:
            continue
        done.add(names)
        plan = plan_loops(pair, costs, size_of, effects, price)
        if plan is not None:
            try:
                module = apply_loop_plan(stages.module, plan)
            except EditError:
                continue
            return module, len(plan.dropped) - (len(plan.stored) - len(kept_stacks(plan)))
    return None
