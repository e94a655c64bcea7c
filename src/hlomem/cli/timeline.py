"""`hlomem timeline`: a device's memory over a run, from a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hlomem.api.job_inputs import open_timeline
from hlomem.base.atomic_files import refuse_existing, write_files
from hlomem.cli.arguments import with_options
from hlomem.cli.options import REPORT
from hlomem.cli.screen import write
from hlomem.report.screens.job_timeline_text import draw_job_timeline


@click.command("timeline")
@click.argument("profile", metavar="PROFILE")
@click.option("--at", metavar="peak|SECONDS", default="peak", help="The moment to look at.")
@click.option(
    "--arrays",
    metavar="FILE",
    help="A device memory profile taken when the trace began: it names older arrays.",
)
@click.option("--allocator", metavar="NAME", help="Which of several, else the largest device's.")
@click.option("--html", metavar="PAGE", type=Path, help="Write the timeline as a page that zooms.")
@click.option("--force", is_flag=True, help="Overwrite PAGE.")
@with_options(REPORT)
def command(
    profile: str,
    at: str,
    arrays: str | None,
    allocator: str | None,
    html: Path | None,
    force: bool,
    **shown: Any,
) -> int:
    """Show a device's memory over a run, and who held it at its peak.

    PROFILE is an .xplane.pb of jax.profiler, gzipped or not, or the folder it wrote. Every
    allocation of XLA's BFC allocator on GPUs is in it; each is joined to the program and the
    allocation of its plan, to an array from the host, to the autotuner or to a library.
    """
    refuse_existing(html, force=force)
    builder = open_timeline(profile, arrays)
    timeline = builder.build(allocator, at)
    if html is not None:
        from hlomem.report.page.job_page import format_timeline  # noqa: PLC0415 - only a page

        page = format_timeline(builder, timeline)
        write_files(html.parent, {html.name: [page.encode()]}, force=force)
        click.echo(f"{html}", err=True)
    return write("timeline", timeline, draw_job_timeline, **shown)
