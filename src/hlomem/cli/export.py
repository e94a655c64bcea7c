"""`hlomem export`: timelines and plans for other tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlomem import __version__
from hlomem.api.job_forecast import open_job
from hlomem.api.opening import open_memory
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import EXIT_OK, CommandError, OtherKindError
from hlomem.base.source import visible
from hlomem.cli.options import SPACE, WHICH_DUMP
from hlomem.report.data.lookup import find_space
from hlomem.report.exports import (
    perfetto_of_forecast,
    perfetto_of_memory,
    perfetto_of_timeline,
    pprof_of_memory,
    pprof_of_rows,
)
from hlomem.report.findings_sarif import build_findings
from hlomem.report.heap_csv import heap_of_memory

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView, Space

FORMATS = ("perfetto", "pprof", "minimalloc", "sarif")
_OF_PLANS = ("minimalloc", "sarif")
"""Formats for plans only."""
_ANY_SIZE = 1 << 50
"""A pool that nothing fills, where the device is not known."""


@click.command("export")
@click.argument("path", metavar="PROFILE|LOG|DUMP")
@click.option("--to", "form", type=click.Choice(FORMATS), required=True)
@click.option("-o", "--output", metavar="FILE", type=Path, help="Else standard output.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--plan", is_flag=True, help="The plan of a profile's program, not its timeline.")
@WHICH_DUMP
@SPACE
def command(
    path: str,
    form: str,
    output: Path | None,
    force: bool,
    plan: bool,
    module: str | None,
    space: str | None,
) -> int:
    """Write a plan, a timeline or findings in the format of another tool.

    A profile with allocator events is a timeline; --plan, --module and --space ask for one of its
    programs instead. LOG is what `hlomem job --log` wrote. Anything else is what `show` takes.
    `perfetto` is a trace that ui.perfetto.dev and Chrome open: bytes in use over time. `pprof` has
    the bytes at the peak by stack, for pprof (-diff_base compares two) and Speedscope. `minimalloc`
    is the largest heap of temporaries as CSV, which `hlomem pack` reads. `sarif` has padding,
    copies and donations at their source lines, for code review.
    """
    is_plan = plan or module is not None or space is not None or form in _OF_PLANS
    data = None if is_plan else _job(path, form)
    if data is None:
        memory = open_memory(path, module=module)
        data = _plan(memory, find_space(memory, space), form, path)
    if output is None:
        if sys.stdout.isatty() and form == "pprof":
            raise CommandError("pprof's form is no text: give -o FILE, or pipe it")
        sys.stdout.buffer.write(data)
        return EXIT_OK
    write_files(output.parent, {output.name: [data]}, force=force)
    click.echo(visible(str(output)), err=True)
    return EXIT_OK


def _plan(memory: MemoryView, space: Space, form: str, path: str) -> bytes:
    match form:
        case "perfetto":
            return perfetto_of_memory(memory, space)
        case "pprof":
            return pprof_of_memory(memory, space)
        case "minimalloc":
            return heap_of_memory(memory, space)
    return json.dumps(build_findings(memory, space, __version__, path), indent=1).encode()


def _job(path: str, form: str) -> bytes | None:
    """The timeline of a profile or the forecast of a log; None where the file is neither."""
    try:
        job = open_job(path)
    except OtherKindError:
        return None
    if job.log is not None:
        limit = round(job.device * job.default_fraction) if job.device else _ANY_SIZE
        if form == "pprof":
            return pprof_of_rows(job.report(limit, grows=True).forecast.rows)
        return perfetto_of_forecast(job.requests(), limit)
    builder = job.timeline
    if builder is None or not builder.allocators:
        return None
    timeline = builder.build()
    if form == "pprof":
        return pprof_of_rows(timeline.moment.rows)
    return perfetto_of_timeline(builder.attribution(timeline.allocator), builder.calls.executions)
