"""`hlomem html`: the memory report as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlomem.api.advise import build_advised_page
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import EXIT_OK, CommandError
from hlomem.base.gc_pause import collector_off
from hlomem.base.source import visible
from hlomem.cli.arguments import SUBJECT, open_both, open_memory, with_options
from hlomem.cli.process import keep, say, say_new_folder
from hlomem.cli.progress import working
from hlomem.fleet.schema import MARKER
from hlomem.machines.capacity import parse_capacity
from hlomem.report.page.html import format_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.report.data.memory import MemoryView
    from hlomem.report.page.waterfall import Waterfall

_NAME = Path("report.html")
_PAGES = 10


@click.command("html")
@click.argument("path", metavar="DUMP|MODULE|STORE")
@click.argument("other", metavar="[OTHER]", required=False)
@click.option("-o", "--output", metavar="FILE", type=Path, default=_NAME, show_default=True)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@click.option("--capacity", metavar="SIZE|CHIP", help="The device memory: 16GiB, v5e, h100, …")
@click.option("--run", metavar="RUN", help="Of a STORE: which run; by default the last.")
@click.option(
    "--pages", metavar="N", type=click.IntRange(0), default=_PAGES, show_default=True,
    help="Of a STORE: programs with pages of their own.",
)  # fmt: skip
@click.option("--program", metavar="ID", help="Of a STORE: write the page of this program.")
@click.option(
    "--fetch", metavar="ADDRESS", help="Of a STORE: programs may be read again below s3://…, gs://…"
)
@with_options(SUBJECT)
def command(
    path: str,
    other: str | None,
    output: Path,
    force: bool,
    opens: bool,
    capacity: str | None,
    run: str | None,
    pages: int,
    program: str | None,
    fetch: str | None,
    **subject: str | None,
) -> int:
    """Write the memory report as one offline page.

    For a DUMP, or a MODULE that is planned first: memory by role, the peak, the location of every
    buffer, and possible savings. With OTHER, both compiles and their difference; see
    docs/reading-the-report.md. For a STORE made by `scan`, one page for all programs, and pages for
    the largest.
    """
    if "://" in path or Path(path, MARKER).is_file():  # remote paths are always stores
        if other is not None or any(subject.values()):
            raise CommandError("a store has one page for all programs; give it alone")
        options = {"force": force, "run": run, "count": pages, "fetch": fetch}
        return _finish(_write_store(path, output, program, capacity, **options), opens=opens)
    if run is not None or program is not None or fetch is not None:
        words = "`--run`, `--program` and `--fetch` are for a store"
        raise CommandError(f"{words}; {visible(path)} is not one")
    if other is not None and subject["hlo"] is not None:
        raise CommandError("`--hlo` is for one dump; of two, each text is next to its dump")
    given = parse_capacity(capacity) if capacity else None
    with collector_off(), working(f"making the page of {path}"):
        memories: Sequence[MemoryView] = (
            [open_memory(path, **subject)] if other is None else open_both(path, other, **subject)
        )
        reports = [build_advised_page(memory, given) for memory in memories]
        difference = None if other is None else _compared(memories[0], memories[1], path, other)
        text = format_page(reports, difference)
    keep((memories, reports))
    say_new_folder(output.parent)
    write_files(output.parent, {output.name: [text.encode()]}, force=force)
    return _finish(output, opens=opens)


def _finish(output: Path, *, opens: bool) -> int:
    say(f"{output}")
    if opens and click.launch(str(output.resolve())) != 0:
        raise CommandError(f"no browser to open {output} with")
    return EXIT_OK


def _compared(before: MemoryView, after: MemoryView, path: str, other: str) -> Waterfall:
    from hlomem.report.data.diff import build_diff, name_sides  # noqa: PLC0415 - for two
    from hlomem.report.page.waterfall import build_waterfall  # noqa: PLC0415 - as above

    return build_waterfall(name_sides(build_diff(before, after), path, other))


def _write_store(
    path: str, output: Path, program: str | None, capacity: str | None, **options: Any
) -> Path:
    from hlomem.fleet.page import write_fleet, write_program  # noqa: PLC0415 - an extra
    from hlomem.fleet.store import forget_copies  # noqa: PLC0415 - as above

    click.get_current_context().call_on_close(forget_copies)
    if program is not None:
        return write_program(path, output, program, run=options["run"], fetch=options["fetch"])
    size = parse_capacity(capacity) if capacity else None
    say_new_folder(output.parent)
    written = write_fleet(path, output, capacity=size, **options)
    for problem in written.problems:
        say(f"note: no page of a program: {visible(problem)}")
    return written.page
