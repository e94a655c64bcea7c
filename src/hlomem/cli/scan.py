"""`hlomem scan`: reads many programs into a store of tables."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hlomem.base.errors import EXIT_OK, CommandError, InputError
from hlomem.base.sizes import parse_size
from hlomem.base.source import visible
from hlomem.cli.progress import progress
from hlomem.fleet.scanning import Progress, describe, scan
from hlomem.fleet.store import forget_copies
from hlomem.report.json import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_SECONDS = 60.0
_MEMORY = "4GiB"


@click.command("scan")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("-o", "--output", "store", metavar="STORE", required=True, help="New or existing.")
@click.option("--run", metavar="NAME", help="The run of the rows; by default the day.")
@click.option("--workers", metavar="N", type=click.IntRange(1), help="Processes; one per core.")
@click.option("--scheduler", metavar="ADDRESS", help="A Dask cluster: tcp://host:8786.")
@click.option("--chip", metavar="CHIP", help="For modules without a plan: v5e, h200, …")
@click.option("--verify", is_flag=True, help="Check every plan (slower).")
@click.option("--advise", is_flag=True, help="Evaluate possible savings (much slower).")
@click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(0.1), default=_SECONDS, show_default=True,
    help="Time limit per input.",
)  # fmt: skip
@click.option(
    "--memory", metavar="SIZE", default=_MEMORY, show_default=True, help="Memory limit per input."
)
@click.option("--retry", is_flag=True, help="Retry inputs that ended in an error.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with progress on standard error.")
def command(
    paths: tuple[str, ...], store: str, timeout: float, memory: str, as_json: bool, **options: Any
) -> int:
    """Scan many programs into a store for `ask` and `html`.

    PATH is a folder, an archive (tar, zip), a compilation cache, a profile or a file, local or
    through fsspec: s3://…, gs://…. Programs are read in separate processes with limits; inputs that
    are damaged, hang or need too much become rows with an error. Unchanged inputs are not read
    again, and an interrupted scan continues. docs/fleet.md describes the tables.
    """
    click.get_current_context().call_on_close(forget_copies)
    size = parse_size(memory)
    if size is None:
        raise CommandError(f"`{visible(memory)}` is not a size such as 4GiB or 500M")
    with _json_lines() if as_json else _line() as say:
        done = scan(paths, store, seconds=timeout, memory=size, on_progress=say, **options)
    if not done.found:
        where = ", ".join(map(visible, paths))
        raise InputError(
            f"{where}: no dump, module or proto; docs/fleet.md lists the supported files"
        )
    if as_json:
        sys.stdout.buffer.write(encode({"kind": "scan", **_fields(done)}) + b"\n")
    else:
        click.echo(describe(done))
    return EXIT_OK


def _fields(now: Progress) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(now)
    return {**fields, "done": now.done, "rate": now.rate, "left": now.seconds_left}


@contextmanager
def _json_lines() -> Iterator[Callable[[Progress], None]]:
    """Prints the progress about once a second, one object per line."""
    said = [-1.0]

    def say(now: Progress) -> None:
        if now.seconds - said[0] >= 1:
            said[0] = now.seconds
            click.echo(encode({"kind": "progress", **_fields(now)}).decode(), err=True)

    yield say


@contextmanager
def _line() -> Iterator[Callable[[Progress], None]]:
    """A progress line with rate and time left, on a terminal."""
    with progress() as draw:

        def say(now: Progress) -> None:
            total = f" of {now.found}" if now.is_listed else ""
            left = "" if now.seconds_left is None else f", {now.seconds_left:.0f} s left"
            draw(f"scan {now.done}{total}, {now.errors} errors, {now.rate:.0f}/s{left}")

        yield say
