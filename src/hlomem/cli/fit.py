"""`hlomem fit`: the largest batch that fits another machine, proven by XLA's plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlomem.base.atomic_files import write_files
from hlomem.base.errors import EXIT_FINDING, CommandError
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import FACTORY_OPTIONS, parse_settings, parse_values
from hlomem.cli.options import REPORT
from hlomem.cli.progress import progress
from hlomem.cli.screen import write
from hlomem.jax.fitting import fit
from hlomem.report.page.fit_page import format_fit
from hlomem.report.screens.fit_text import draw_fit
from hlomem.report.screens.text import bar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BAR = 16


@click.command("fit")
@with_options(FACTORY_OPTIONS)
@click.option(
    "--over",
    multiple=True,
    required=True,
    metavar="NAME[=A,B,…]",
    help="The setting to increase; with values, one row for each of them.",
)
@click.option("--step", type=click.IntRange(min=1), default=1, help="Values are multiples of it.")
@click.option("--start", type=click.IntRange(min=1), help="The first value to plan.")
@click.option("--capacity", metavar="SIZE|CHIP", help="The device memory, if not the target's.")
@click.option(
    "--cache", metavar="DIR", type=Path, help="Where to keep plans; by default the user's cache."
)
@click.option("--html", metavar="FILE", type=Path, help="Write table and plot as a page.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@with_options(REPORT)
def command(
    factory: str,
    target: str,
    settings: tuple[str, ...],
    imports: tuple[str, ...],
    timeout: float,
    over: tuple[str, ...],
    step: int,
    start: int | None,
    capacity: str | None,
    cache: Path | None,
    html: Path | None,
    force: bool,
    **shown: Any,
) -> int:
    """Find the largest batch that fits, by XLA's own plans.

    FACTORY is as for `hlomem compile`. One --over names the integer setting to increase; others
    have values, and every combination of them is a row: --over batch --over remat=none,full. Two
    plans predict the largest value; it and the next are planned as proof, in at most six plans per
    row. Plans are cached. The exit code is 1 if a row fits at no value or is not proven.
    """
    if html is not None and html.exists() and not force:
        raise CommandError(f"{visible(str(html))} exists; give --force to overwrite it")
    name, rows = _parse_over(over)
    with progress() as draw:
        report = fit(
            factory,
            target=target,
            over=name,
            rows=rows,
            settings=parse_settings(settings),
            step=step,
            start=start or 0,
            capacity=capacity,
            cache=cache,
            timeout=timeout,
            imports=imports,
            on_progress=_bar_with(draw),
        )
    if html is not None:
        write_files(html.parent, {html.name: [format_fit(report).encode()]}, force=force)
        click.echo(f"{html}", err=True)
    write("fit", report, draw_fit, **shown)
    is_answered = all(row.is_proven and row.largest for row in report.rows)
    return 0 if is_answered else EXIT_FINDING


def _bar_with(draw: Callable[[str], None]) -> Callable[[int, int, str], None]:
    def report(row: int, rows: int, words: str) -> None:
        draw(f"{bar(row + 1, rows, _BAR)} row {row + 1} of {rows}  {words}")

    return report


def _parse_over(words: Sequence[str]) -> tuple[str, dict[str, list[Any]]]:
    """The setting to increase, and the values of those that make rows."""
    growing = [word for word in words if "=" not in word]
    if len(growing) != 1:
        problem = f"{len(growing) or 'no'} settings to increase"
        raise CommandError(f"{problem}: give one --over without values, as in --over batch")
    return growing[0], parse_values([word for word in words if "=" in word])
