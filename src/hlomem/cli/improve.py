"""`hlomem improve`: a better order of a program's instructions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from hlomem.api.improve import BetterOrder, improve
from hlomem.api.improved_page import format_orders
from hlomem.api.load import encode, find_program, load_any, load_program
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import CommandError
from hlomem.base.gc_pause import collector_off
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import SET, parse_settings
from hlomem.cli.options import BACKEND, HLO_TEXT, MODULE_ERA, REPORT, WHICH_DUMP
from hlomem.cli.progress import progress, working
from hlomem.cli.screen import write
from hlomem.dump.dump import Dump
from hlomem.machines.budget import MemoryBudget, parse_budget
from hlomem.opt.constants import BUDGETS, RECOMPUTE
from hlomem.opt.goal import EFFORTS, Effort, Rules
from hlomem.report.screens.improvement_text import draw_improvement

if TYPE_CHECKING:
    from hlomem.report.data.front import FrontPoint

Front: TypeAlias = "tuple[tuple[FrontPoint, ...], tuple[str, ...]]"
"""Points of memory against operations, and notes on them."""
_TIMEOUT = 1800.0


@click.command("improve")
@click.argument("path", metavar="DUMP|MODULE|MODULE:FACTORY")
@click.option(
    "--target", default="", metavar="TARGET", help="Compile a FACTORY's program for: tpu-v5e:2x2, …"
)
@SET
@WHICH_DUMP
@HLO_TEXT
@BACKEND
@click.option("--chip", default="", metavar="CHIP", help="The chip of the backend: h200, …")
@MODULE_ERA
@click.option(
    "--effort",
    type=click.Choice(EFFORTS),
    default="default",
    show_default=True,
    help="How long to search: low takes a few plans, high ten times the default or more.",
)
@click.option(
    "--reorder-collectives",
    is_flag=True,
    help="Allow reordering collectives; valid if every device runs this program.",
)
@click.option(
    "--max-slowdown",
    type=click.FloatRange(1, 100),
    default=1.0,
    metavar="RATIO",
    help="Let exposed transfers make it take this many times as long, by a rough model.",
)
@click.option(
    "--recompute",
    type=click.FloatRange(0, 1),
    default=RECOMPUTE,
    show_default=True,
    metavar="SHARE",
    help="Rematerialize for at most this share of operations and of modelled time.",
)
@click.option(
    "--pareto",
    is_flag=True,
    help="Show memory against operations, with more and more values rematerialized.",
)
@click.option(
    "--fit",
    metavar="SIZE|CHIP|SHARE",
    help="With --pareto: name the cheapest that fits this budget, as in 15.75GiB, v5e or 50%.",
)
@click.option(
    "--budgets",
    is_flag=True,
    help="With --pareto: look for the cheapest at 90, 75, 60, 50, 35 and 25 % of the temporaries.",
)
@click.option("-o", "--output", metavar="FILE", type=Path, help="Write the improved program.")
@click.option(
    "--html", "page", metavar="PAGE", type=Path, help="Write a page that draws both orders."
)
@click.option("--force", is_flag=True, help="Overwrite FILE and PAGE.")
@with_options(REPORT)
@collector_off()
def command(
    path: str,
    target: str,
    settings: tuple[str, ...],
    effort: Effort,
    reorder_collectives: bool,
    max_slowdown: float,
    recompute: float,
    pareto: bool,
    fit: str | None,
    budgets: bool,
    output: Path | None,
    page: Path | None,
    force: bool,
    **shown: Any,
) -> int:
    """Show what a better order of instructions would save, and write it.

    The order is searched, checked, planned and verified; sizes are those of the plan, and the bound
    holds for every order. Then cheap values are rematerialized, as the pass of hlomem.jax does;
    --recompute 0 only reorders.

    With -o the program is written as scheduled HLO text, unchanged if nothing better was found;
    with --html a page shows the memory of both side by side. Without its HLO module, the program of
    a DUMP is rebuilt first: it is only reordered, and cannot be written.

    With --pareto more and more values are rematerialized: sizes are those of plans, operations are
    counted, time is modelled. Such a program is not written; `hlomem.jax.optimize(fit=…)` compiles
    it. For a FACTORY, the policies of jax.checkpoint are tried as well, each with XLA's own plan.

    With --target the program of a FACTORY is compiled for another machine, as `hlomem compile`
    does. For a TPU several orders are tried, each planned by libtpu itself.
    """
    subject = {name: shown.pop(name) for name in ("module", "hlo", "backend", "chip", "era")}
    rules = Rules(effort, reorder_collectives, max_slowdown, recompute)
    if (fit is not None or budgets) and not pareto:
        raise CommandError(f"`--{'budgets' if fit is None else 'fit'}` needs `--pareto`")
    asked = _Asked(parse_budget(fit), BUDGETS if budgets else (), has_front=pareto)
    limit: int | None = None
    front: Front = ((), ())
    if target:
        for option, value in subject.items():
            if value:
                words = f"`--{option}` is for a dump or module, `--target` for a factory"
                raise CommandError(words)
        found, front, limit = _of_factory(path, target, settings, rules, asked)
    else:
        if settings:
            raise CommandError("`--set` is for a factory; `--target` says which machine it is for")
        needs_text = output is not None or page is not None
        found = _of_file(path, rules, needs_text=needs_text, **subject)
        if pareto:
            limit = asked.limit_of(found)
            front = _front(found, limit, asked.shares), ()
    if pareto:
        from hlomem.api.front import with_front  # noqa: PLC0415 - only this needs it

        found = found._replace(report=with_front(found.report, front[0], limit, front[1]))
    if output is not None:
        _write(output, found.text(), force=force)
    if page is not None:
        _write(page, format_orders(found), force=force)
    return write("improvement", found.report, draw_improvement, **shown)


class _Asked(NamedTuple):
    """The points that are asked for."""

    budget: MemoryBudget
    shares: tuple[float, ...]
    has_front: bool

    def limit_of(self, found: BetterOrder) -> int | None:
        given = found.ordered.given.start()
        return self.budget.limit_of(given.total - given.temporaries, found.report.before)


def _front(
    found: BetterOrder, limit: int | None, shares: tuple[float, ...]
) -> tuple[FrontPoint, ...]:
    from hlomem.api.front import find_points  # noqa: PLC0415 - only this needs it

    if found.is_rebuilt:
        raise CommandError("`--pareto` needs the HLO module; give --hlo MODULE")
    with working(f"rematerializing values of {found.report.name}"):
        return find_points(found, limit, shares=shares)


def _of_factory(
    factory: str,
    target: str,
    settings: tuple[str, ...],
    rules: Rules,
    asked: _Asked,
) -> tuple[BetterOrder, Front, int | None]:
    from hlomem.jax import factory_front  # noqa: PLC0415 - only this needs JAX
    from hlomem.jax.compile.messages import Job  # noqa: PLC0415

    job = Job(factory=factory, target=target, settings=parse_settings(settings))
    with progress() as draw:

        def say(doing: str) -> None:
            draw(f"{doing} {factory} for {target}")

        improved = factory_front.improve_factory(job, rules, _TIMEOUT, say)
        if not asked.has_front:
            return improved.found, ((), ()), None
        limit = asked.limit_of(improved.found)
        made = factory_front.find_factory_front(
            job, improved, limit, _TIMEOUT, say, shares=asked.shares
        )
        return improved.found, (made.points, made.notes), limit


def _of_file(
    path: str,
    rules: Rules,
    *,
    needs_text: bool,
    module: str | None,
    hlo: str | None,
    **machine: str | None,
) -> BetterOrder:
    loaded = load_any(path, module=module)
    program = None
    if isinstance(loaded, Dump):
        program = load_program(hlo) if hlo else find_program(path, module)
        if program is None and needs_text:
            name = visible(path)
            raise CommandError(f"{name}: no HLO module next to the dump; give --hlo MODULE")
    with working(f"searching better orders of {path}"):
        return improve(
            loaded,
            module=program,
            backend=machine["backend"] or "",
            chip=machine["chip"] or "",
            era=machine["era"] or "",
            effort=rules.effort,
            may_reorder_collectives=rules.may_reorder_collectives,
            max_slowdown=rules.max_slowdown,
            recompute=rules.recompute,
        )


def _write(path: Path, text: str, *, force: bool) -> None:
    write_files(path.parent, {path.name: [encode(text)]}, force=force)
