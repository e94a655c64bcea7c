"""A better order of a factory's program, on a machine that is not here.

In: a `Job`. Out: a `BetterOrder` of the module the compiler hands to passes. XLA's own order is
compiled in a child, which also keeps that module. For a TPU orders are then tried, each by a plan
of libtpu's, and the sizes are those of its plans; elsewhere they are those of hlomem's, and values
are computed again where that is almost free.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem import hlo
from hlomem.base.source import visible
from hlomem.jax.jobs import Job
from hlomem.jax.kept_module import FACTORY
from hlomem.jax.module_plans import planned_bytes, temporaries_of
from hlomem.jax.module_proto import text_of
from hlomem.jax.plan_only import CompileError, PlannedProgram, plan_in_child
from hlomem.jax.proven_orders import prove_orders
from hlomem.jax.registration import TRIED, compiler_options
from hlomem.opt.cheap_remat import recompute_freely
from hlomem.opt.order_search import improve_stages
from hlomem.pipeline import in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.opt.order_search import BetterOrder, Rules


class ImprovedFactory(NamedTuple):
    """A factory's program in a better order, and all that is known of it."""

    found: BetterOrder
    planned: PlannedProgram
    """In XLA's own order."""
    proto: bytes
    """The module the compiler handed to passes."""


def improve_factory(
    job: Job, rules: Rules, timeout: float, on_progress: Callable[[str], None] = lambda _: None
) -> ImprovedFactory:
    """Look for an order of a factory's program that needs less memory on the job's target."""
    planned, proto = capture(job, timeout, on_progress)
    options = compiler_options(planned.target.family, planned.target.machine.chip_name)
    stages = start_stages(hlo.parse(text_of(proto)), options, order_lists=in_text_order)
    on_progress("searches")
    found = improve_stages(stages.module.name, stages, rules)
    if planned.target.family != TRIED:
        return ImprovedFactory(recompute_freely(found, rules), planned, proto)
    on_progress("tries orders of")
    plan = partial(planned_bytes, planned.target.name, planned.target.family)
    proven = prove_orders(proto, found, rules, plan, before=temporaries_of(planned.dump))
    note = f"sizes are those of libtpu's own plans; {proven.tried} orders were tried"
    report = replace(
        found.report,
        before=proven.before,
        after=proven.after,
        bound=None,
        verdict="open",
        method=proven.name,
        computations=(),
        notes=(note, *proven.objections),
    )
    found = found._replace(report=report, orders=proven.orders)
    return ImprovedFactory(found, planned, proto)


def capture(
    job: Job, timeout: float, on_progress: Callable[[str], None]
) -> tuple[PlannedProgram, bytes]:
    """The compiler's plan of its own order, and the module it handed to passes."""
    with TemporaryDirectory(prefix="hlomem-") as folder:
        file = Path(folder) / "module.pb"
        return capture_into(file, job, timeout, on_progress)


def capture_into(
    file: Path,
    job: Job,
    timeout: float,
    on_progress: Callable[[str], None],
    checkpoint: Mapping[str, str] | None = None,
) -> tuple[PlannedProgram, bytes]:
    """The same by a file; with `policy` and `place` of a `checkpoint` its places lie beside it."""
    settings = {
        "factory": job.factory,
        "target": job.target,
        "settings": job.settings,
        "output": str(file),
        **(checkpoint or {}),
    }
    errand = Job(factory=FACTORY, target=job.target, settings=settings, imports=job.imports)
    try:
        planned = plan_in_child(errand, timeout=timeout, on_progress=on_progress)
    except CompileError as error:  # the user's factory is what failed, not ours around it
        raise CompileError(str(error).replace(FACTORY, visible(job.factory))) from error
    if not file.exists():
        problem = f"the compiler for {job.target} handed its module to no pass"
        raise CompileError(f"{problem}; jax 0.10.2 and later do")
    return planned, file.read_bytes()
