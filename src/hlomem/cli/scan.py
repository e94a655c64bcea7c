"""`hlomem scan`: many programs into a store of tables."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hlomem.base.errors import EXIT_OK, CommandError, InputError
from hlomem.base.sizes import parse_size
from hlomem.base.source import visible
from hlomem.fleet.scanning import Progress, describe, scan
from hlomem.fleet.store import forget_copies
from hlomem.report.json import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_SECONDS = 60.0
_MEMORY = "4GiB"


@click.command("scan")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("-o", "--output", "store", metavar="STORE", required=True, help="Made, or added to.")
@click.option("--run", metavar="NAME", help="The run the rows belong to; else the day.")
@click.option("--workers", metavar="N", type=click.IntRange(1), help="Processes; else the cores.")
@click.option("--scheduler", metavar="ADDRESS", help="A Dask cluster's: tcp://host:8786.")
@click.option("--chip", metavar="CHIP", help="Of modules that are planned: v5e, h200, …")
@click.option("--verify", is_flag=True, help="Also check every plan (slower).")
@click.option("--advise", is_flag=True, help="Also say what would save memory (much slower).")
@click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(0.1), default=_SECONDS, show_default=True,
    help="What one input may take.",
)  # fmt: skip
@click.option(
    "--memory", metavar="SIZE", default=_MEMORY, show_default=True, help="What one input may need."
)
@click.option("--retry", is_flag=True, help="Read again what ended in an error.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, progress on standard error too.")
def command(
    paths: tuple[str, ...],
    store: str,
    timeout: float,
    memory: str,
    as_json: bool,
    **options: Any,
) -> int:
    """Scan many programs into a store, which `ask` and `html` read.

    PATH is a folder, an archive (tar, zip), a compilation cache, a profile or a file, here or
    where fsspec reaches: s3://…, gs://…. Every program is read by a process of its own, within
    limits: what is damaged, hangs or needs too much is a row with its error. What did not change
    is not read again; a scan that was killed goes on where it was. docs/fleet.md says what the
    tables hold.
    """
    click.get_current_context().call_on_close(forget_copies)
    size = parse_size(memory)
    if size is None:
        raise CommandError(f"`{visible(memory)}` is not a size such as 4GiB or 500M")
    with _json_lines() if as_json else _bar() as say:
        done = scan(paths, store, seconds=timeout, memory=size, on_progress=say, **options)
    if not done.found:
        where = ", ".join(map(visible, paths))
        raise InputError(
            f"{where}: no dump, module or proto; docs/fleet.md says what is looked for"
        )
    if as_json:
        sys.stdout.buffer.write(encode({"kind": "scan", **_fields(done)}) + b"\n")
    else:
        click.echo(describe(done))
    return EXIT_OK


def _fields(progress: Progress) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(progress)
    return {**fields, "done": progress.done, "rate": progress.rate, "left": progress.seconds_left}


@contextmanager
def _json_lines() -> Iterator[Callable[[Progress], None]]:
    """Says how far it is, about once a second, one object a line."""
    said = [-1.0]

    def say(progress: Progress) -> None:
        if progress.seconds - said[0] >= 1:
            said[0] = progress.seconds
            click.echo(encode({"kind": "progress", **_fields(progress)}).decode(), err=True)

    yield say


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None] | None]:
    """A bar with rate and time left, where somebody sees it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.0f}/s"), TimeRemainingColumn(),
    )  # fmt: skip
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        number = bar.add_task("scan", total=None, rate=0.0)

        def say(progress: Progress) -> None:
            words = f"{progress.errors} errors" if progress.errors else "scan"
            total = progress.found if progress.is_listed else None
            bar.update(
                number, completed=progress.done, total=total, rate=progress.rate, description=words
            )

        yield say
