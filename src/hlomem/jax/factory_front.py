"""`hlomem.jax.front`: memory against operations of a factory's program.

    hlomem.jax.front("train:make_step", target="cpu", fit="48 MiB")

In: a factory. Out: an `ImprovementReport` with the points that hlomem finds and the policies of
jax.checkpoint. On CPU hlomem's plans are XLA's; elsewhere the compiler works on behind the hook,
and so plans every point of the front itself, in a child that is stopped when its plan is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.jax.factory_orders import improve_factory
from hlomem.jax.fitting import spec_of
from hlomem.jax.jobs import Job
from hlomem.jax.module_plans import planned_bytes, temporaries_of
from hlomem.jax.module_proto import with_module, with_orders
from hlomem.jax.policies import try_policies
from hlomem.jax.registration import FITTED
from hlomem.machines.capacity import parse_capacity
from hlomem.opt.order_search import Rules
from hlomem.opt.pareto import find_front, with_front

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.jax.factory_orders import ImprovedFactory
    from hlomem.opt.orders.search import Effort, Orders
    from hlomem.opt.remat.variants import Variant
    from hlomem.report.data.front import FrontPoint
    from hlomem.report.data.improvement import ImprovementReport

MAX_SECONDS = 1800.0
"""How long one compile may take."""


class FactoryFront(NamedTuple):
    """The points of a factory's program, and words on what was tried."""

    points: tuple[FrontPoint, ...]
    notes: tuple[str, ...]


def front(
    factory: str | Callable[..., Any],
    *,
    target: str = "cpu",
    settings: Mapping[str, Any] | None = None,
    fit: int | str | None = None,
    effort: Effort = "default",
    timeout: float = MAX_SECONDS,
) -> ImprovementReport:
    """Memory against operations of a factory's program, with the policies of jax.checkpoint.

    `factory` is one of `hlomem compile`, by name or itself, if a child can import it. `fit` is the
    memory that all allocations may take: bytes, `"200 MiB"` or a chip. In the report, `.front` has
    the points, `.advice` what to type. `timeout` is what each compile may take.
    """
    rules = Rules(effort)
    job = Job(factory=spec_of(factory), target=target, settings=dict(settings or {}))
    limit = parse_capacity(fit).size if isinstance(fit, str) else fit
    improved = improve_factory(job, rules, timeout)
    found = find_factory_front(job, improved, rules, limit, timeout)
    return with_front(improved.found.report, found.points, limit, found.notes)


def find_factory_front(
    job: Job,
    improved: ImprovedFactory,
    rules: Rules,
    limit: int | None,
    timeout: float,
    on_progress: Callable[[str], None] = lambda _: None,
) -> FactoryFront:
    """All points: XLA's own program, those hlomem finds, and the policies of jax.checkpoint."""
    target = improved.planned.target

    def plan(variant: Variant | None, orders: Orders) -> int:
        if variant is None and not orders:
            return temporaries_of(improved.planned.dump)
        on_progress("plans points of")
        proto = improved.proto
        if variant is not None:
            proto = with_module(proto, variant.changes[-1].module)
        return planned_bytes(target.name, target.family, with_orders(proto, orders))

    on_progress("computes values again of")
    is_exact = target.family == FITTED
    points = find_front(improved.found, rules, None if is_exact else plan, limit)
    given = next(point for point in points if point.kind == "given")
    tried = try_policies(job, given, timeout, on_progress)
    planner = () if is_exact else (f"every program was planned by the compiler for {target.name}",)
    return FactoryFront((*points, *tried.points), (*planner, *tried.notes))
