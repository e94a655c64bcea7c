"""Values of a program computed again, until it fits a number: found, then judged by others.

In: a program in the order that was found for it, and the bytes that all allocations together may
take. Out: `Recomputed`s. Variants that keep less are made for rising prices
(`hlomem.opt.remat.variants`). One that is near the number gets an order of its own, and single
values are computed again (`hlomem.opt.remat.budget_search`). What is found is handed out only if
judges that know nothing of the search, and the verifier of plans, have nothing against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.gc_pause import collector_off
from hlomem.hlo.schedule import running_computations
from hlomem.opt.checks.edit import find_edit_problems
from hlomem.opt.order_search import improve_stages, new_findings
from hlomem.opt.orders.planned_orders import in_orders, other_bytes, temporary_bytes
from hlomem.opt.remat.budget_search import Allowed, Budget, fit
from hlomem.opt.remat.edit import Edit
from hlomem.opt.remat.variants import (
    PRICES,
    Change,
    Variant,
    change_loops,
    cut_inside,
    judge_changes,
    program_flops,
)
from hlomem.pipeline import in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import HloModule
    from hlomem.opt.order_search import BetterOrder, Rules
    from hlomem.opt.orders.search import Orders
    from hlomem.opt.remat.budget_search import Point
    from hlomem.pipeline import Stages

CHEAP = 0.01
"""The share of a program's operations below which nothing cheaper is looked for."""
NEAR = 1.3
"""How much more than the number a variant may take to be worth a search of its own."""


class Recomputed(NamedTuple):
    """A program with values computed again, as it is planned."""

    changes: tuple[Change, ...]
    """Texts of the program, one after another; empty where it is edited as it was given."""
    edit: Edit
    """The rest, made to the last of them: clones, and the order of all."""
    temporaries: int
    total: int
    flops: int
    """Operations more than in the program as given, by our count."""
    program_flops: int
    """Operations of the program as given."""
    stacks: int
    """Stacks of loops that are gone."""
    clones: int
    """Instructions outside of loops that are computed again."""

    @property
    def is_cheap(self) -> bool:
        """Whether next to nothing is computed again."""
        return self.flops <= CHEAP * self.program_flops


def recompute_program(found: BetterOrder, limit: int, rules: Rules) -> list[Recomputed]:
    """Programs that need less, each planned, in the order they were found."""
    with collector_off():
        return list(_Search(found, limit, rules).run())


def choose_cheapest(points: Sequence[Recomputed], limit: int) -> Recomputed | None:
    """The cheapest that fits, else the smallest; None where there is none."""
    fitting = [point for point in points if point.total <= limit]
    return min(
        fitting or points,
        key=lambda point: (point.flops, point.total) if fitting else (point.total, point.flops),
        default=None,
    )


class _Search:
    def __init__(self, found: BetterOrder, limit: int, rules: Rules) -> None:
        self._found = found
        self._limit = limit
        self._rules = rules
        self._flops = program_flops(found.stages)
        self._budget = Budget(rules.effort)
        self._cheapest: int | None = None
        """Operations that the cheapest adds that fits."""

    def run(self) -> Iterator[Recomputed]:
        """The program itself, then its loops for rising prices, until they cost too much."""
        stages, orders = self._found.stages, self._found.orders
        given = Variant((), stages, self._flops)
        start = in_orders(stages, orders)
        yield from self._fitted(given, start)
        yield from self._varied(start)
        if orders and self._cheapest is None:
            yield from self._fitted(given, stages)

    def _varied(self, start: Stages) -> Iterator[Recomputed]:
        """Loops that stack less, and cut inside where most is alive there, while nothing fits."""
        given = Variant((), start, self._flops)
        seen: set[tuple[int, int]] = set()
        for price in PRICES:
            looped = change_loops(start, price)
            if looped is not None:
                if self._is_dear(looped):
                    return
                yield from self._looked_at(looped, seen)
            inside = cut_inside(looped or given, price) if self._cheapest is None else None
            if inside is not None:
                yield from self._looked_at(inside, seen)

    def _looked_at(self, variant: Variant, seen: set[tuple[int, int]]) -> Iterator[Recomputed]:
        key = variant.flops, variant.stages.assignment.total_bytes
        if key not in seen:  # else the same for another price
            seen.add(key)
            yield self._plain(variant, variant.stages, {})
            yield from self._refined(variant)

    def _is_dear(self, variant: Variant) -> bool:
        """Whether a variant costs no less than something that fits."""
        return self._cheapest is not None and variant.flops - self._flops >= self._cheapest

    def _note(self, point: Recomputed) -> Recomputed:
        if point.total <= self._limit:
            known = self._cheapest
            self._cheapest = point.flops if known is None else min(point.flops, known)
        return point

    def _room(self, stages: Stages) -> int:
        """Bytes that temporaries may take."""
        return max(self._limit - other_bytes(stages), 0)

    def _refined(self, variant: Variant) -> Iterator[Recomputed]:
        """A variant in an order of its own; where it is near, with single values made again."""
        stages = variant.stages
        if self._is_dear(variant):
            return
        low = self._rules._replace(effort="low")
        orders = improve_stages(stages.module.name, stages, low).orders
        start = in_orders(stages, orders)
        if orders:
            yield self._plain(variant, start, orders)
        if temporary_bytes(start) <= NEAR * self._room(start) and not self._is_dear(variant):
            yield from self._fitted(variant, start)

    def _fitted(self, variant: Variant, start: Stages) -> Iterator[Recomputed]:
        most = self._cheapest
        if most is not None:
            most -= variant.flops - self._flops
        allowed = Allowed(self._rules.may_reorder_collectives, self._rules.max_slowdown)
        for point in fit(start, self._room(start), most, self._budget, allowed).points:
            yield self._edited(variant, point)

    def _plain(self, variant: Variant, stages: Stages, orders: Orders) -> Recomputed:
        names = {
            computation.name: tuple(
                one.name for one in orders.get(computation) or stages.schedule.sequence(computation)
            )
            for computation in running_computations(stages.module)
        }
        return self._note(
            Recomputed(
                variant.changes,
                Edit(stages.module.entry.name, (), {}, names),
                temporary_bytes(stages),
                stages.assignment.total_bytes,
                variant.flops - self._flops,
                self._flops,
                variant.stacks,
                variant.clones,
            )
        )

    def _edited(self, variant: Variant, point: Point) -> Recomputed:
        return self._note(
            Recomputed(
                variant.changes,
                point.edit,
                point.temporaries,
                point.total,
                point.flops + variant.flops - self._flops,
                self._flops,
                variant.stacks,
                variant.clones + point.clones,
            )
        )


def judge_edited(
    stages: Stages,
    edited: HloModule,
    temporaries: int,
    rules: Rules,
    changes: tuple[Change, ...] = (),
) -> list[str]:
    """Problems of an edited module as the compiler will read it; `changes` came before the edit."""
    given = stages.module
    problems = judge_changes(given, changes)
    problems = problems or find_edit_problems(
        changes[-1].module if changes else given,
        edited,
        may_reorder_collectives=rules.may_reorder_collectives,
        may_lose_overlap=bool(rules.max_slowdown),
    )
    if problems:
        return problems
    planned = start_stages(edited, stages.options, order_lists=in_text_order)
    if temporary_bytes(planned) != temporaries:
        return [f"it is planned in {temporary_bytes(planned)} bytes, not {temporaries}"]
    return new_findings(edited, given, stages.options)
