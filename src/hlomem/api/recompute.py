"""Values of a program computed again, until it fits a number: found, then judged by others.

In: the stages of a plan whose order is chosen, and the bytes that all allocations together may
take. Out: a `Recomputed`. What `hlomem.remat.fit` finds is handed out only if `hlomem.remat.check`
and the verifier of plans have nothing against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.api.improve import new_findings
from hlomem.pipeline import in_text_order, start_stages
from hlomem.remat.check import find_edit_problems
from hlomem.remat.fit import fit
from hlomem.schedule.planned_orders import temporary_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.api.improve import Rules
    from hlomem.hlo.ir import HloModule
    from hlomem.pipeline import Stages
    from hlomem.remat.fit import Point


class Recomputed(NamedTuple):
    """The worth of computing values again."""

    point: Point | None
    """None where nothing was found that needs less."""
    program_flops: int
    """Operations of the program as given, by our count."""


def recompute_stages(starts: Sequence[Stages], limit: int) -> Recomputed:
    """Compute values again until all allocations together take no more than a number of bytes.

    `starts` are plans of one program in several orders: the order that needs least is not always
    the one from which it costs least to need less still. The cheapest that fits is taken, else the
    smallest.
    """
    found = []
    for stages in starts:
        rest = stages.assignment.total_bytes - temporary_bytes(stages)
        found.append(fit(stages, max(limit - rest, 0)))
    points = [one.best for one in found if one.best is not None]
    fitting = [point for point in points if point.total <= limit]
    best = min(
        fitting or points,
        key=lambda point: point.flops if fitting else point.total,
        default=None,
    )
    return Recomputed(best, found[0].program_flops)


def judge_edited(stages: Stages, edited: HloModule, point: Point, rules: Rules) -> list[str]:
    """Problems of an edited module as the compiler will read it."""
    given = stages.module
    problems = find_edit_problems(
        given,
        edited,
        may_reorder_collectives=rules.may_reorder_collectives,
        may_lose_overlap=bool(rules.max_slowdown),
    )
    if problems:
        return problems
    planned = start_stages(edited, stages.options, order_lists=in_text_order)
    if temporary_bytes(planned) != point.temporaries:
        return [f"it is planned in {temporary_bytes(planned)} bytes, not {point.temporaries}"]
    return new_findings(edited, given, stages.options)
