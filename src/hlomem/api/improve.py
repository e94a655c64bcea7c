"""`hlomem.improve`: a program that needs less memory: another order, a few values computed again.

In: a program, or a dump of one. Out: a `BetterOrder`. The order is found and judged by
`improve.py`; then values are computed again where that is almost free (`almost_free.py`), as the
pass of `hlomem.jax` does by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem import hlo
from hlomem.api.plan import plan
from hlomem.api.replan import replan
from hlomem.base.errors import UnsupportedError
from hlomem.dump.dump import Dump
from hlomem.opt.cheap_remat import RECOMPUTE, recompute_freely
from hlomem.opt.order_search import Rules, check_rules, improve_stages
from hlomem.opt.tight_packing import pack_tightly
from hlomem.pipeline import in_text_order, start_stages
from hlomem.report.data.improvement import TightPacking

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule
    from hlomem.opt.order_search import BetterOrder
    from hlomem.opt.orders.search import Effort
    from hlomem.pipeline import Stages


def improve(
    subject: Dump | HloModule | str,
    *,
    module: HloModule | None = None,
    backend: str = "",
    chip: str = "",
    era: str = "",
    effort: Effort = "default",
    may_reorder_collectives: bool = False,
    max_slowdown: float = 0.0,
    recompute: float = RECOMPUTE,
) -> BetterOrder:
    """An order that needs less memory, of a program (HLO text or a module) or a dump's program.

    `module` is the dump's program where it is at hand; else it is rebuilt from the dump. `backend`
    is `cpu` for a program, and inferred for a dump. `may_reorder_collectives` is for programs of
    which every device gets the same order. `max_slowdown` is the share of the program's time, by a
    rough model, for which transfers may no longer be hidden. `recompute` is the share of the
    program's operations, and of its modelled time, that computing values again may add; 0 leaves
    the instructions as they are, in another order.
    """
    rules = check_rules(Rules(effort, may_reorder_collectives, max_slowdown, recompute))
    notes: list[str] = []
    is_rebuilt = isinstance(subject, Dump) and module is None
    if isinstance(subject, Dump):
        name = subject.name
        stages = _stages_of_dump(subject, module, backend, chip, notes)
    else:
        program = hlo.parse(subject) if isinstance(subject, str) else subject
        name = program.name
        made = plan(program, backend=backend, chip=chip, era=era, order="text")
        stages = made.stages
        notes += made.notes
    _refuse_fixed(stages)
    found = improve_stages(name, stages, rules, notes, is_rebuilt=is_rebuilt)
    found = recompute_freely(found, rules)
    return found._replace(report=replace(found.report, packing=_packing(found)))


def _packing(found: BetterOrder) -> TightPacking:
    """The bytes that the best packing needs of the program as given, and of that found."""
    before = after = pack_tightly(found.stages, {})
    if found.edited:
        module = hlo.parse(found.edited)
        stages = start_stages(module, found.stages.options, order_lists=in_text_order)
        after = pack_tightly(stages, {})
    elif found.orders:
        after = pack_tightly(found.stages, found.orders)
    return TightPacking(
        before=before.size,
        before_proven=before.is_proven,
        after=after.size,
        after_proven=after.is_proven,
    )


def _stages_of_dump(
    dump: Dump, module: HloModule | None, backend: str, chip: str, notes: list[str]
) -> Stages:
    base = replan(dump, backend=backend, chip=chip)
    if module is None:
        notes.append("the program was rebuilt from the dump")
        return base.stages
    machine = base.stages.options.machine
    order = None if module.is_scheduled else dump
    return plan(
        module,
        backend=machine,
        like=dump,
        schedule=order,
        order="text",
    ).stages


def _refuse_fixed(stages: Stages) -> None:
    """Places that were chosen for the given order are wrong for any other."""
    color = stages.options.machine.preset_color
    is_fixed = color is not None and any(
        allocation.color == color and allocation.slices
        for allocation in stages.assignment.allocations
    )
    if is_fixed:
        source = stages.module.source
        problem = "values lie in fast memory where they were placed for the order at hand"
        hint = "a TPU's program can only get another order before that, while it is compiled"
        raise UnsupportedError(source, source.first_line, problem, hint)
