"""Values of a program computed again where that is almost free: found, then judged by others.

In: a program in the order that was found for it, and the share of its work that may be added. Out:
a `Recomputed`, or the `BetterOrder` with its text and report. The search is
`hlomem.opt.remat.cheap`. What it finds is handed out only if judges that know nothing of it, and
the verifier of plans, have nothing against it; else the order stays as it is, and a note says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem import hlo
from hlomem.hlo.text.printer import format_module
from hlomem.opt.budget import Recomputed, judge_edited
from hlomem.opt.orders.latency import model_time, module_time
from hlomem.opt.remat.cheap import find_free
from hlomem.opt.remat.edit import apply_edit
from hlomem.opt.remat.origins import find_origins
from hlomem.pipeline import in_text_order, start_stages
from hlomem.report.data.improvement import ComputedAgain

if TYPE_CHECKING:
    from hlomem.opt.order_search import BetterOrder, Rules

RECOMPUTE = 0.02
"""The share by default: too little to be seen in the time of a run."""


def find_recomputed(found: BetterOrder, rules: Rules) -> Recomputed | None:
    """A program that needs less than the order alone; None where nothing is that cheap.

    A compiler that fills fast memory behind the pass, as a TPU's does, needs what nobody can
    foresee; its programs are left alone.
    """
    if not rules.recompute or found.stages.options.machine.preset_color is not None:
        return None
    program = find_free(
        found.stages,
        found.orders,
        rules.recompute,
        may_reorder_collectives=rules.may_reorder_collectives,
    )
    if program is None:
        return None
    return Recomputed(
        program.variant.changes,
        program.edit,
        program.temporaries,
        program.total,
        program.flops,
        program.program_flops,
        program.variant.stacks,
        program.clones,
    )


def recompute_freely(found: BetterOrder, rules: Rules) -> BetterOrder:
    """The program with values computed again, if that needs less and nobody objects."""
    if found.is_rebuilt:
        return found
    scheduled = _scheduled(found)
    made = find_recomputed(scheduled, rules)
    if made is None:
        return found
    given = scheduled.stages.module
    base = made.changes[-1].module if made.changes else given
    text = format_module(apply_edit(base, made.edit))
    problems = judge_edited(
        scheduled.stages, hlo.parse(text), made.temporaries, rules, made.changes
    )
    if problems:
        note = f"values computed again were rejected: {problems[0]}"
        return found._replace(report=replace(found.report, notes=(*found.report.notes, note)))
    report = replace(
        found.report, after=made.temporaries, again=_describe(scheduled, made, text, found)
    )
    return found._replace(report=report, edited=text)


def _scheduled(found: BetterOrder) -> BetterOrder:
    """The same of a text that carries its schedule, in the order that was found."""
    if found.stages.module.is_scheduled:
        return found
    module = hlo.parse(found.text())
    stages = start_stages(module, found.stages.options, order_lists=in_text_order)
    return found._replace(stages=stages, orders={})


def _describe(
    scheduled: BetterOrder, made: Recomputed, text: str, found: BetterOrder
) -> ComputedAgain:
    module = hlo.parse(text)
    time = model_time(scheduled.stages, {}).before
    return ComputedAgain(
        ordered=found.report.after,
        instructions=made.clones,
        stacks=made.stacks,
        flops=made.flops,
        program_flops=made.program_flops,
        time=module_time(module, scheduled.stages.options.machine) - time,
        program_time=time,
        lines=find_origins(module),
    )
