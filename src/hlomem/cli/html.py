"""`hlomem html`: the memory report as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlomem.advice.advising import advise_on
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import EXIT_OK, CommandError
from hlomem.base.gc_pause import collector_off
from hlomem.cli.process import keep, say, say_new_folder
from hlomem.cli.subject import SUBJECT, open_memory, with_options
from hlomem.machines.capacity import parse_capacity
from hlomem.report.data.diff import build_diff, name_sides
from hlomem.report.page.html import format_page
from hlomem.report.page.page import build_page, is_quick
from hlomem.report.page.waterfall import build_waterfall

if TYPE_CHECKING:
    from hlomem.report.data.advice import AdviceReport
    from hlomem.report.data.memory import MemoryView

_NAME = Path("report.html")


@click.command("html")
@click.argument("path", metavar="DUMP|MODULE")
@click.argument("other", metavar="[OTHER]", required=False)
@click.option("-o", "--output", metavar="FILE", type=Path, default=_NAME, show_default=True)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@click.option("--capacity", metavar="SIZE|CHIP", help="What the device has: 16GiB, v5e, h100, …")
@with_options(SUBJECT)
def command(
    path: str,
    other: str | None,
    output: Path,
    force: bool,
    opens: bool,
    capacity: str | None,
    **subject: str | None,
) -> int:
    """Write the memory report as one page that opens offline.

    Of a DUMP, or of a MODULE as it would be planned: what the memory is for, when most is alive,
    where every buffer lies, and what could be saved. With OTHER, both compiles and the way from
    one to the other. docs/reading-the-report.md says how to read it.
    """
    if other is not None and subject["hlo"] is not None:
        raise CommandError("`--hlo` is for one dump; of two, each text is found beside its dump")
    given = parse_capacity(capacity) if capacity else None
    with collector_off():
        memories = [open_memory(side, **subject) for side in (path, other) if side is not None]
        pages = [build_page(memory, given, _advised(memory)) for memory in memories]
        difference = None
        if other is not None:
            difference = build_waterfall(name_sides(build_diff(*memories), path, other))
        text = format_page(pages, difference)
    keep((memories, pages))
    say_new_folder(output.parent)
    write_files(output.parent, {output.name: [text.encode()]}, force=force)
    say(f"{output}")
    if opens and click.launch(str(output.resolve())) != 0:
        raise CommandError(f"no browser to open {output} with")
    return EXIT_OK


def _advised(memory: MemoryView) -> AdviceReport | None:
    """Advice for the page; none where the program is too large to try changes in passing."""
    return advise_on(memory) if is_quick(memory) else None
