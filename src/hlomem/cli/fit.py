"""`hlomem fit`: what fits where, and the largest batch that does, proven by XLA's plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlomem.base.atomic_files import refuse_existing, write_files
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, CommandError
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import FACTORY_OPTIONS, parse_settings, parse_values
from hlomem.cli.options import REPORT
from hlomem.cli.progress import progress
from hlomem.cli.screen import write
from hlomem.jax.fitting import fit
from hlomem.report.fit_csv import format_fit_csv
from hlomem.report.page.fit_page import format_fit
from hlomem.report.screens.fit_text import draw_fit
from hlomem.report.screens.fit_verdict_text import draw_verdicts
from hlomem.report.screens.text import bar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.report.data.fit import FitReport

_BAR = 16


@click.command("fit")
@with_options(FACTORY_OPTIONS)
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=A,B,…",
    help="A row for each value of a setting, of chip, topology, slices, target or mesh.",
)
@click.option("--max", "growing", metavar="NAME", help="The setting to make as large as fits.")
@click.option("--axes", metavar="NAME,…", help="The axes of the mesh; mesh=auto tries all sizes.")
@click.option("--step", type=click.IntRange(min=1), default=1, help="Values are multiples of it.")
@click.option("--start", type=click.IntRange(min=1), help="The first value to plan.")
@click.option("--capacity", metavar="SIZE|CHIP", help="The device memory, if not the target's.")
@click.option("--price", metavar="CHIP=N,…", help="The price of an hour of a chip.")
@click.option("--check", is_flag=True, help="Say in one line for each row whether it fits.")
@click.option("--workers", metavar="N", type=click.IntRange(1), help="Processes; one per core.")
@click.option("--scheduler", metavar="ADDRESS", help="A Dask cluster: tcp://host:8786.")
@click.option(
    "--cache", metavar="DIR", type=Path, help="Where to keep plans; by default the user's cache."
)
@click.option("--html", metavar="FILE", type=Path, help="Write table and plot as a page.")
@click.option("--csv", metavar="FILE", type=Path, help="Write the table as CSV.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@with_options(REPORT)
def command(
    factory: str,
    settings: tuple[str, ...],
    over: tuple[str, ...],
    growing: str | None,
    axes: str | None,
    start: int | None,
    price: str | None,
    check: bool,
    html: Path | None,
    csv: Path | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Find what fits where, and the largest batch that does, by XLA's own plans.

    FACTORY is as for `hlomem compile`. Every combination of the values of --over is a row: --over
    chip=v5e,v6e --over remat=none,full. --max names an integer setting (--over NAME without values
    does, too): two plans predict its largest value; that and the next are planned as proof, in at
    most eight plans per row. Without it each row is one plan. Plans are cached. The exit code is 1
    if a row does not fit or is not proven. See docs/fit.md.
    """
    for file in (html, csv):
        refuse_existing(file, force=force)
    name, rows = _parse_over(over, growing)
    with progress() as draw:
        report = fit(
            factory,
            over=name,
            rows=rows,
            axes=axes.split(",") if axes else (),
            settings=parse_settings(settings),
            start=start or 0,
            prices=_parse_prices(price),
            on_progress=_bar_with(draw),
            **options,
        )
    _write_files(report, html, csv, force=force)
    write("fit", report, draw_verdicts if check else draw_fit, as_json=as_json)
    return EXIT_OK if all(row.is_answered for row in report.rows) else EXIT_FINDING


def _write_files(report: FitReport, html: Path | None, csv: Path | None, *, force: bool) -> None:
    for file, format_ in ((html, format_fit), (csv, format_fit_csv)):
        if file is not None:
            write_files(file.parent, {file.name: [format_(report).encode()]}, force=force)
            click.echo(f"{file}", err=True)


def _bar_with(draw: Callable[[str], None]) -> Callable[[int, int, str], None]:
    def report(row: int, rows: int, words: str) -> None:
        draw(f"{bar(row + 1, rows, _BAR)} row {row + 1} of {rows}  {words}")

    return report


def _parse_over(words: Sequence[str], growing: str | None) -> tuple[str, dict[str, list[Any]]]:
    """The setting to increase, if any, and the values of those that make rows."""
    grown = [*([growing] if growing else []), *(word for word in words if "=" not in word)]
    if len(grown) > 1:
        problem = f"{len(grown)} settings to increase"
        raise CommandError(f"{problem}: give one, as in --max batch")
    return "".join(grown), parse_values([word for word in words if "=" in word])


def _parse_prices(text: str | None) -> dict[str, float]:
    prices: dict[str, float] = {}
    for word in text.split(",") if text else ():
        chip, equals, number = word.partition("=")
        try:
            prices[chip] = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise CommandError(f"`{visible(word)}` is no price of a chip, as in v5e=1.2")
    return prices
