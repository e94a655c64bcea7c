"""`hlomem kernel`: what the Pallas kernels of a function use of VMEM, and which blocks fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlomem.base.atomic_files import refuse_existing, write_files
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, CommandError
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import FACTORY, SETTINGS, parse_settings, parse_values
from hlomem.cli.options import REPORT
from hlomem.cli.progress import progress
from hlomem.cli.screen import write
from hlomem.jax.kernels.front import measure_factory
from hlomem.report.page.kernels_page import format_kernels
from hlomem.report.screens.kernels_text import draw_kernels

if TYPE_CHECKING:
    from hlomem.report.data.kernels import KernelReport


@click.command("kernel")
@FACTORY
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    metavar="TARGET",
    help="The chip to compile for: tpu-v5e:2x2, tpu-v6e, cuda-h100, …; once for each.",
)
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=A,B,…",
    help="Values of a setting; of several every combination is a cell.",
)
@click.option(
    "--largest", is_flag=True, help="Only find the largest blocks, in 6 compiles at most."
)
@click.option("--exact", is_flag=True, help="Compile every setting that its lower bound allows.")
@click.option("--shrink", is_flag=True, help="Halve integer settings until all kernels fit.")
@with_options(SETTINGS)
@click.option(
    "--cache", metavar="DIR", type=Path, help="Where to keep numbers; by default the user's cache."
)
@click.option("--html", metavar="FILE", type=Path, help="Write grid and table as a page.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@with_options(REPORT)
def command(
    factory: str,
    targets: tuple[str, ...],
    over: tuple[str, ...],
    largest: bool,
    exact: bool,
    shrink: bool,
    settings: tuple[str, ...],
    imports: tuple[str, ...],
    timeout: float,
    cache: Path | None,
    html: Path | None,
    force: bool,
    **shown: Any,
) -> int:
    """Show what Pallas kernels use of VMEM, and which block sizes fit.

    FACTORY is as for `hlomem compile`. Every Pallas call is cut out of its function, and compiled
    alone by libtpu, without a TPU. With --over a setting that cannot fit by its blocks alone is not
    compiled, nor one whose answer follows from larger blocks that fit or smaller ones that do not.
    The exit code is 1 if a kernel, or every setting of a target, does not fit. See docs/kernels.md.
    """
    refuse_existing(html, force=force)
    if (largest or exact) and not over:
        raise CommandError("--largest and --exact choose among settings: give --over NAME=A,B")
    if shrink and over:
        raise CommandError("--shrink finds the settings itself: give it or --over")
    with progress() as draw:
        report = measure_factory(
            factory,
            targets=targets,
            over=parse_values(over),
            settings=parse_settings(settings),
            is_largest=largest,
            is_exact=exact,
            is_shrink=shrink,
            cache=cache,
            timeout=timeout,
            imports=imports,
            on_progress=draw,
        )
    if html is not None:
        write_files(html.parent, {html.name: [format_kernels(report).encode()]}, force=force)
        click.echo(f"{html}", err=True)
    write("kernel", report, draw_kernels, **shown)
    return EXIT_OK if _is_answered(report) else EXIT_FINDING


def _is_answered(report: KernelReport) -> bool:
    """Whether every kernel fits, or for every target one of its settings."""
    if report.over:
        return all(best.settings is not None for best in report.largest)
    return all(row.fits for row in report.rows)
