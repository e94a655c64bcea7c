"""Values of a program computed again, until it fits a number: found, then judged by others.

In: a program in the order that was found for it, and the bytes that all allocations together may
take. Out: a `Recomputed`. Loops come first: what they stack for one another is chosen anew
(`hlomem.remat.variants`), since that frees most for least. Then single values are computed again
(`hlomem.remat.fit`), where a program is not far from the number. What is found is handed out only
if judges that know nothing of the search, and the verifier of plans, have nothing against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.api.improve import improve_stages, new_findings
from hlomem.hlo.schedule import Schedule, running_computations
from hlomem.pipeline import in_text_order, start_stages
from hlomem.remat.check import find_edit_problems
from hlomem.remat.edit import Edit
from hlomem.remat.fit import fit
from hlomem.remat.meaning import find_meaning_problems
from hlomem.remat.variants import find_variants, program_flops
from hlomem.schedule.planned_orders import temporary_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.api.improve import BetterOrder, Rules
    from hlomem.hlo.ir import HloModule
    from hlomem.pipeline import Stages
    from hlomem.remat.fit import Point
    from hlomem.remat.variants import Variant
    from hlomem.schedule.search import Orders

FAR = 0.6
"""The share of a program that single values are not expected to come down to where loops could."""


class Recomputed(NamedTuple):
    """A program with values computed again, as it is planned."""

    text: str
    """The program with other loops; empty where the loops stay."""
    edit: Edit
    """The rest, made to that: clones, and the order of all."""
    temporaries: int
    total: int
    flops: int
    """Operations more than in the program as given, by our count."""
    program_flops: int
    """Operations of the program as given."""
    stacks: int
    """Stacks of loops that are gone."""

    @property
    def clones(self) -> int:
        """Instructions outside of loops that are computed again."""
        return len(self.edit.clones)


def recompute_program(found: BetterOrder, limit: int, rules: Rules) -> list[Recomputed]:
    """Programs that need less, each planned, in the order they were found."""
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

    def run(self) -> Iterator[Recomputed]:
        """Loops from the cheapest on until one fits, single values where that may be cheaper."""
        variants = find_variants(self._found.stages)
        cheapest: int | None = None
        for number, variant in enumerate((None, *variants)):
            if cheapest is not None and variant and variant.flops - self._flops >= cheapest:
                return
            for point in self._of_variant(variant, is_last=number == len(variants)):
                yield point
                if point.total <= self._limit:
                    cheapest = min(point.flops, cheapest if cheapest is not None else point.flops)

    def _of_variant(self, variant: Variant | None, *, is_last: bool) -> Iterator[Recomputed]:
        if variant is not None:
            yield self._plain(variant, variant.stages, {})
            if variant.stages.assignment.total_bytes <= self._limit:
                return
        stages = variant.stages if variant else self._found.stages
        orders = self._found.orders
        if variant is not None:
            orders = improve_stages(stages.module.name, stages, self._rules).orders
        starts = [stages]
        if orders:
            ordered = {one: list(order) for one, order in orders.items()}
            starts.insert(0, stages.rescheduled(Schedule(ordered)))
            if variant is not None:
                yield self._plain(variant, starts[0], orders)
        if starts[0].assignment.total_bytes <= self._limit:
            return
        for start in starts:
            rest = start.assignment.total_bytes - temporary_bytes(start)
            wanted = max(self._limit - rest, 0)
            if is_last or wanted >= FAR * temporary_bytes(start):
                yield from (self._edited(variant, point) for point in fit(start, wanted).points)

    def _plain(self, variant: Variant, stages: Stages, orders: Orders) -> Recomputed:
        names = {
            computation.name: tuple(
                one.name for one in orders.get(computation) or stages.schedule.sequence(computation)
            )
            for computation in running_computations(stages.module)
        }
        return Recomputed(
            variant.text,
            Edit(stages.module.entry.name, (), {}, names),
            temporary_bytes(stages),
            stages.assignment.total_bytes,
            variant.flops - self._flops,
            self._flops,
            variant.stacks,
        )

    def _edited(self, variant: Variant | None, point: Point) -> Recomputed:
        return Recomputed(
            variant.text if variant else "",
            point.edit,
            point.temporaries,
            point.total,
            point.flops + (variant.flops - self._flops if variant else 0),
            self._flops,
            variant.stacks if variant else 0,
        )


def judge_edited(
    stages: Stages,
    edited: HloModule,
    temporaries: int,
    rules: Rules,
    looped: HloModule | None = None,
) -> list[str]:
    """Problems of an edited module as the compiler will read it.

    `looped` is the module whose loops were changed first, where any were; it is judged, too.
    """
    given = stages.module
    problems = find_meaning_problems(given, looped) if looped is not None else []
    problems = problems or find_edit_problems(
        looped or given,
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
