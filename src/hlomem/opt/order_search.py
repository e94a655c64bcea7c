"""An order of a program's instructions that needs less memory, found and judged.

In: the stages of a plan. Out: a `BetterOrder`. The search is `hlomem.opt.orders.search`; what it
finds is judged twice by others: `hlomem.opt.checks.order` works out anew whether the program may
run so, and the program in its new order is planned and verified. An order that either of them
objects to is not handed out. `hlomem.improve` itself is in `improvement.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.check.verify import verify
from hlomem.dump.dump import Dump
from hlomem.dump.eras import NEWEST
from hlomem.dump.parts import Part, Wrapping
from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.schedule import running_computations
from hlomem.hlo.text.printer import format_module
from hlomem.opt.checks.order import find_problems
from hlomem.opt.orders.planned_orders import in_orders, needed_bytes
from hlomem.opt.orders.search import EFFORTS, Effort, Improvement
from hlomem.opt.orders.search import improve as search
from hlomem.pipeline import in_text_order, start_stages
from hlomem.report.data.improvement import (
    ComputationOrder,
    ImprovementReport,
    Verdict,
)
from hlomem.write.build import build_contents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.hlo.ir import HloModule
    from hlomem.machines.options import Options
    from hlomem.opt.orders.search import Orders
    from hlomem.pipeline import Stages


class BetterOrder(NamedTuple):
    """An order that was found, right and verified."""

    report: ImprovementReport
    stages: Stages
    """Of the program in the given order."""
    orders: Orders
    """The instructions of every computation whose order is another."""
    is_rebuilt: bool
    """Whether the program was made of a dump, and is not the text XLA had."""
    edited: str = ""
    """The text with values computed again, scheduled; empty where none are."""

    @property
    def total(self) -> int:
        """Bytes of all allocations in the new order, as planned; nothing is computed again."""
        return needed_bytes(in_orders(self.stages, self.orders))

    def text(self) -> str:
        """The program's text in the new order, scheduled, with what is computed again."""
        return self.edited or _text_of(self.stages, self.orders)

    def given_text(self) -> str:
        """The program's text in the order it came in."""
        return _text_of(self.stages, {})


class Rules(NamedTuple):
    """How an order is looked for, and what it may do."""

    effort: Effort = "default"
    may_reorder_collectives: bool = False
    max_slowdown: float = 0.0
    recompute: float = 0.0
    """The share of a program's operations, and of its modelled time, that computing values again
    may add; nothing is computed again for 0."""


def check_rules(rules: Rules) -> Rules:
    """The rules, if they make sense; `CommandError` where one does not."""
    effort = rules.effort
    if effort not in EFFORTS:
        raise CommandError(f"unknown effort `{visible(effort)}`; known are {', '.join(EFFORTS)}")
    shares = {"max_slowdown": rules.max_slowdown, "recompute": rules.recompute}
    for name, share in shares.items():
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise CommandError(f"`{name}` is a share between 0 and 1, not {visible(str(share))}")
    return rules


def improve_stages(
    name: str,
    stages: Stages,
    rules: Rules,
    notes: Iterable[str] = (),
    *,
    is_rebuilt: bool = False,
    judges: bool = True,
) -> BetterOrder:
    """Look for an order of a program whose plan is begun; nothing is computed again.

    Without `judges` nobody has been asked about the order: it is for those who ask later.
    """
    found = search(
        stages,
        rules.effort,
        may_reorder_collectives=rules.may_reorder_collectives,
        max_slowdown=rules.max_slowdown,
    )
    notes = [*notes]
    if judges:
        found = _judged(stages, found, rules, notes, is_rebuilt=is_rebuilt)
    report = _report(name, stages, found, rules.effort, notes)
    return BetterOrder(report, stages, found.orders, is_rebuilt)


def _judged(
    stages: Stages, found: Improvement, rules: Rules, notes: list[str], *, is_rebuilt: bool
) -> Improvement:
    """The order found, if nothing objects; else the given one."""
    if not found.orders:
        return found
    problems = find_objections(stages, found.orders, rules, is_rebuilt=is_rebuilt)
    if not problems:
        return found
    notes.append(f"an order was found and rejected: {problems[0]}")
    kept = tuple(order._replace(peak=order.given_peak, is_proven=False) for order in found.found)
    return found._replace(orders={}, after=found.before, method="as given", found=kept)


def find_objections(
    stages: Stages, orders: Orders, rules: Rules, *, is_rebuilt: bool = False
) -> list[str]:
    """Objections to orders: that the program may not run so, or that its plan is wrong.

    The plan of a program that was rebuilt from a dump is not verified.
    """
    problems = find_problems(
        stages.module,
        orders,
        given={
            computation: stages.schedule.sequence(computation)
            for computation in running_computations(stages.module)
        },
        may_reorder_collectives=rules.may_reorder_collectives,
        may_lose_overlap=bool(rules.max_slowdown),
    )
    return problems if problems or is_rebuilt else _objections(stages, orders)


def _objections(stages: Stages, orders: Orders) -> list[str]:
    """Findings of the judge in the new order's plan that the given order's plan does not have."""
    found = _findings(hlo.parse(_text_of(stages, orders)), stages.options)
    known = _findings(hlo.parse(_text_of(stages, {})), stages.options) if found else {}
    return [message for rule, message in found.items() if rule not in known]


def new_findings(new: HloModule, given: HloModule, options: Options) -> list[str]:
    """Findings of the judge in the plan of one module that the plan of another does not have."""
    found = _findings(new, options)
    known = _findings(given, options) if found else {}
    return [message for rule, message in found.items() if rule not in known]


def _findings(module: HloModule, options: Options) -> dict[str, str]:
    """Findings of the judge in the plan of a module, one for each rule."""
    stages = start_stages(module, options, order_lists=in_text_order)
    contents = build_contents(stages, NEWEST.features)
    part = Part("plan", "combined", contents, NEWEST.features, Wrapping())
    dump = Dump("plan", (part,), (NEWEST,))
    verdict = verify(dump, module=module, machine=options.machine)
    return {finding.rule: finding.message for finding in verdict.findings}


def _text_of(stages: Stages, orders: Orders) -> str:
    rewriter = Rewriter(stages.module)
    rewriter.schedule(
        {
            computation: orders.get(computation) or stages.schedule.sequence(computation)
            for computation in running_computations(stages.module)
        }
    )
    return format_module(rewriter.finish())


def _report(
    name: str, stages: Stages, found: Improvement, effort: Effort, notes: list[str]
) -> ImprovementReport:
    computations = tuple(
        ComputationOrder(
            name=order.computation.name,
            instructions=len(order.computation.instructions),
            given_peak=order.given_peak,
            peak=order.peak,
            method=order.method,
            proven=order.is_proven,
        )
        for order in reversed(found.found)
        if order.computation in found.orders
    )
    return ImprovementReport(
        name=name,
        backend=stages.options.machine.name,
        effort=effort,
        before=found.before,
        after=found.after,
        bound=found.bound,
        verdict=_verdict(found),
        method=found.method,
        computations=computations,
        notes=tuple(notes),
    )


def _verdict(found: Improvement) -> Verdict:
    if found.bound is not None and found.after <= found.bound:
        return "at the bound"
    return "proven" if all(order.is_proven for order in found.found) else "open"
