"""Memory against operations: what a program needs if more and more of it is computed again.

In: a program in the order that was found for it. Out: `FrontPoint`s: the program as given, in the
better order, and the variants of `hlomem.remat.variants` for every price, each in an order of its
own. Each is planned; those of which none is smaller and cheaper are on the front, and judged: one
that a judge objects to is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.api.improve import improve_stages
from hlomem.base.gc_pause import collector_off
from hlomem.hlo.schedule import Schedule
from hlomem.remat.variants import PRICES, iter_variants, judge_changes, program_flops
from hlomem.report.data.improvement import FrontPoint
from hlomem.schedule.planned_orders import temporary_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.api.improve import BetterOrder, Rules
    from hlomem.pipeline import Stages
    from hlomem.remat.variants import Change, Variant

GIVEN, ORDERED, AGAIN = "as given", "better order", "computed again"


class _Found(NamedTuple):
    point: FrontPoint
    changes: tuple[Change, ...]


def find_front(found: BetterOrder, rules: Rules) -> tuple[FrontPoint, ...]:
    """All points, the cheapest first."""
    with collector_off():
        points = list(_points(found, rules))
    kept: list[FrontPoint] = []
    for one in sorted(points, key=lambda one: (one.point.flops, one.point.temporaries)):
        is_on = not kept or one.point.temporaries < min(point.temporaries for point in kept)
        if is_on and judge_changes(found.stages.module, one.changes):
            continue
        is_seen = any(_size(point) == _size(one.point) for point in kept)
        if not is_seen or not one.changes:
            kept.append(replace(one.point, on_front=is_on))
    return tuple(kept)


def _size(point: FrontPoint) -> tuple[int, int]:
    return point.flops, point.temporaries


def _points(found: BetterOrder, rules: Rules) -> Iterator[_Found]:
    stages = found.stages
    flops = program_flops(stages)
    yield _Found(_point(temporary_bytes(stages), 0, flops, GIVEN), ())
    start = stages
    if found.orders:
        start = stages.rescheduled(
            Schedule({computation: list(order) for computation, order in found.orders.items()})
        )
        yield _Found(_point(temporary_bytes(start), 0, flops, ORDERED), ())
    for price in PRICES:
        for variant in iter_variants(start, price):
            size = _least(variant, rules)
            name = f"{AGAIN}: {_amount(variant)}"
            yield _Found(_point(size, variant.flops - flops, flops, name), variant.changes)


def _least(variant: Variant, rules: Rules) -> int:
    """Bytes in the better of two orders: as it was written, and as one is found."""
    stages: Stages = variant.stages
    return improve_stages(stages.module.name, stages, rules._replace(effort="low")).report.after


def _amount(variant: Variant) -> str:
    parts = [f"{variant.stacks} stacks of loops"] if variant.stacks else []
    parts += [f"{variant.clones} instructions"] if variant.clones else []
    return ", ".join(parts) or "other stacks of loops"


def _point(temporaries: int, flops: int, program: int, name: str) -> FrontPoint:
    return FrontPoint(
        name=name, temporaries=temporaries, flops=flops, program_flops=program, on_front=False
    )
