"""`hlomem leaks`: what grew between device memory profiles."""

from __future__ import annotations

from typing import Any

import click

from hlomem.api.job_inputs import open_memory_profile
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, CommandError
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.options import REPORT
from hlomem.cli.screen import write
from hlomem.job.leaks import find_leaks
from hlomem.report.screens.leaks_text import draw_leaks


@click.command("leaks")
@click.argument("profiles", metavar="EARLIER LATER…", nargs=-1)
@with_options(REPORT)
def command(profiles: tuple[str, ...], **shown: Any) -> int:
    """Show what grew between device memory profiles, by line.

    Profiles are those of jax.profiler.save_device_memory_profile, the earliest first, taken at the
    same point of a loop. An array less on one line and one of the same size more on another has
    moved, as all state does that a step donates; only the rest has grown. With three or more, what
    grew in every interval is a leak. The exit code is 1 when something grew.
    """
    if len(profiles) < 2:
        raise CommandError("give two memory profiles or more, the earliest first")
    opened = [(visible(path), open_memory_profile(path)) for path in profiles]
    leaks = find_leaks(opened)
    write("leaks", leaks, draw_leaks, **shown)
    return EXIT_FINDING if leaks.grown else EXIT_OK
