"""Memory against operations: what a program needs if more and more of it is computed again.

In: a program in the order that was found for it. Out: `FrontPoint`s: the program as given, in the
better order, and the variants of `hlomem.opt.remat.variants` for every price, each in an order of
its own. Each is planned; those of which none is smaller and cheaper are on the front, and judged:
one that a judge objects to is left out. Where a compiler goes on working behind the hook, it is
asked for the sizes of those on the front, and there are no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from hlomem import hlo
from hlomem.base.gc_pause import collector_off
from hlomem.opt.budget import choose_cheapest, judge_edited, recompute_program
from hlomem.opt.order_search import improve_stages
from hlomem.opt.orders.latency import model_time, module_time
from hlomem.opt.orders.planned_orders import in_orders, temporary_bytes
from hlomem.opt.remat.edit import apply_edit
from hlomem.opt.remat.origins import find_kept, find_origins
from hlomem.opt.remat.variants import PRICES, iter_variants, judge_changes, program_flops
from hlomem.pipeline import in_text_order, start_stages
from hlomem.report.data.code_advice import advise_code
from hlomem.report.data.front import FrontPoint, sort_front
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hlomem.opt.order_search import BetterOrder, Rules
    from hlomem.opt.orders.search import Orders
    from hlomem.opt.remat.variants import Variant
    from hlomem.pipeline import Stages
    from hlomem.report.data.improvement import ImprovementReport

GIVEN, ORDERED, AGAIN = "as given", "better order", "again"


class Work(NamedTuple):
    """The operations and the modelled time of a program."""

    flops: int
    time: int


class _Found(NamedTuple):
    point: FrontPoint
    variant: Variant | None
    orders: Orders
    """Of the variant, or of the program as given."""


Plan: TypeAlias = "Callable[[Variant | None, Orders], int]"
"""Bytes of temporaries that a compiler plans for a variant, or the given program, so ordered."""


def find_front(
    found: BetterOrder, rules: Rules, plan: Plan | None = None, limit: int | None = None
) -> tuple[FrontPoint, ...]:
    """All points, the cheapest first; with `plan` those on the front, as a compiler plans them.

    With a `limit`, what is found for this number is among them, where plans need no compiler.
    """
    with collector_off():
        points = list(_points(found, rules))
    kept: list[_Found] = []
    for one in sorted(points, key=lambda one: _size(one.point)):
        least = min((other.point.temporaries for other in kept), default=None)
        is_on = least is None or one.point.temporaries < least
        changes = one.variant.changes if one.variant is not None else ()
        if is_on and judge_changes(found.stages.module, changes):
            continue
        is_seen = any(_size(other.point) == _size(one.point) for other in kept)
        if one.variant is None or (is_on if plan is not None else not is_seen):
            kept.append(one)
    if plan is not None:
        return sort_front(_with_lines(_replanned(one, plan)) for one in kept)
    fitted = find_fit(found, rules, limit) if limit is not None else None
    others = [point for point in (_free_point(found), fitted) if point is not None]
    return sort_front([*map(_with_lines, kept), *others])


def _free_point(found: BetterOrder) -> FrontPoint | None:
    """The program with what is almost free computed again; None where nothing is."""
    again = found.report.again
    if again is None:
        return None
    module = hlo.parse(found.edited)
    stages = start_stages(module, found.stages.options, order_lists=in_text_order)
    return FrontPoint(
        name=f"{AGAIN}: {_amount(again.stacks, again.instructions)}, almost free",
        kind="recomputed",
        temporaries=found.report.after,
        total=stages.assignment.total_bytes,
        flops=again.flops,
        program_flops=again.program_flops,
        time=again.time,
        program_time=again.program_time,
        lines=again.lines,
        kept=() if again.stacks else find_kept(module),
    )


def find_fit(found: BetterOrder, rules: Rules, limit: int) -> FrontPoint | None:
    """The point that `hlomem.jax.optimize(fit=…)` would take; None where the order does."""
    if found.total <= limit:
        return None
    made = choose_cheapest(recompute_program(found, limit, rules), limit)
    if made is None:
        return None
    stages = found.stages
    given = made.changes[-1].module if made.changes else stages.module
    module = apply_edit(given, made.edit)
    if judge_edited(stages, module, made.temporaries, rules, made.changes):
        return None
    work = work_of(stages)
    return FrontPoint(
        name=f"{AGAIN}: {_amount(made.stacks, made.clones)}, for this number",
        kind="recomputed",
        temporaries=made.temporaries,
        total=made.total,
        flops=made.flops,
        program_flops=work.flops,
        time=module_time(module, stages.options.machine) - work.time,
        program_time=work.time,
        lines=find_origins(module),
        kept=() if made.stacks else find_kept(module),
    )


def with_front(
    report: ImprovementReport,
    points: Iterable[FrontPoint],
    limit: int | None,
    notes: Sequence[str] = (),
) -> ImprovementReport:
    """A report with memory against operations, the cheapest that fits a limit, and advice."""
    marked = sort_front(points, limit)
    return replace(
        report,
        front=marked,
        limit=limit,
        advice=advise_code(marked, limit),
        notes=(*report.notes, *notes),
    )


def work_of(stages: Stages) -> Work:
    """The operations and the modelled time of a program in its given order."""
    return Work(program_flops(stages), model_time(stages, {}).before)


def _replanned(found: _Found, plan: Plan) -> _Found:
    """A point with the bytes its compiler plans."""
    point, size = found.point, plan(found.variant, found.orders)
    total = point.total - point.temporaries + size
    return found._replace(point=replace(point, temporaries=size, total=total))


def _size(point: FrontPoint) -> tuple[int, int]:
    return point.flops, point.temporaries


def _with_lines(found: _Found) -> FrontPoint:
    """A point with the lines of the user's code that it computes again, and keeps."""
    if found.variant is None:
        return found.point
    module = found.variant.stages.module
    kept = () if found.variant.stacks else find_kept(module)  # stacks are not seen in the entry
    return replace(found.point, lines=find_origins(module), kept=kept)


def _points(found: BetterOrder, rules: Rules) -> Iterator[_Found]:
    stages = found.stages
    work = work_of(stages)
    given = FrontPoint(
        name=GIVEN,
        kind="given",
        temporaries=temporary_bytes(stages),
        total=stages.assignment.total_bytes,
        flops=0,
        program_flops=work.flops,
        time=0,
        program_time=work.time,
    )
    yield _Found(given, None, {})
    start = stages
    if found.orders:
        start = in_orders(stages, found.orders)
        ordered = replace(
            given,
            name=ORDERED,
            kind="ordered",
            temporaries=temporary_bytes(start),
            total=start.assignment.total_bytes,
            time=model_time(stages, found.orders).after - work.time,
        )
        yield _Found(ordered, None, found.orders)
    for price in PRICES:
        for variant in iter_variants(start, price):
            yield _recomputed(variant, given, rules)


def _recomputed(variant: Variant, given: FrontPoint, rules: Rules) -> _Found:
    """A variant in the better of two orders: as it was written, and as one is found."""
    stages = variant.stages
    found = improve_stages(stages.module.name, stages, rules._replace(effort="low"))
    point = replace(
        given,
        name=f"{AGAIN}: {_amount(variant.stacks, variant.clones)}",
        kind="recomputed",
        temporaries=found.report.after,
        total=found.total,
        flops=variant.flops - given.program_flops,
        time=model_time(stages, found.orders).after - given.program_time,
    )
    return _Found(point, variant, found.orders)


def _amount(stacks: int, clones: int) -> str:
    parts = [plural(stacks, "stack") + " of loops"] if stacks else []
    parts += [plural(clones, "instruction")] if clones else []
    return ", ".join(parts) or "other stacks of loops"
