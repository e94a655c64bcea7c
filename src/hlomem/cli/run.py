"""`hlomem run`: runs a command and reports its programs' memory."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlomem.base.errors import CommandError
from hlomem.base.sizes import parse_size
from hlomem.cli.process import say
from hlomem.run.child import run_child
from hlomem.run.dumps import MAX_DISK, DumpFolder
from hlomem.run.flags import read_flags, users_folder, with_dumps
from hlomem.run.report import RunOutcome, report_run

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = "hlomem-run.html"
_KEPT_PAGE = "report.html"


@click.command(
    "run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("command_line", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED)
@click.option("-o", "--output", metavar="DIR", type=Path, help="Keep the dumps in a new folder.")
@click.option(
    "--page",
    metavar="FILE",
    type=Path,
    help=f"The report, overwritten; by default {PAGE}, or {_KEPT_PAGE} in DIR.",
)
@click.option("--no-page", is_flag=True, help="Write no report.")
@click.option("--with-cache", is_flag=True, help="Keep JAX's compilation cache enabled.")
@click.option(
    "--max-disk",
    metavar="SIZE",
    default=MAX_DISK,
    show_default=True,
    help="Remove the smallest dumps beyond this size.",
)
def command(
    command_line: Sequence[str],
    output: Path | None,
    page: Path | None,
    no_page: bool,
    with_cache: bool,
    max_disk: str,
) -> int:
    """Run a command with XLA's dumps enabled, and show what its programs need.

    COMMAND is any command that compiles with XLA: JAX, PyTorch/XLA, vLLM. Its output, signals and
    exit code are passed through; afterwards the largest programs are listed, and an out-of-memory
    error is explained. XLA_FLAGS are kept, including a dump folder. JAX's compilation cache is
    disabled, since cached programs are not dumped.
    """
    if not command_line:
        raise CommandError("no command: hlomem run -- python train.py")
    if no_page and page is not None:
        raise CommandError("`--no-page` and `--page` exclude each other")
    limit = parse_size(max_disk)
    if limit is None:
        raise CommandError(f"`{max_disk}` is not a size such as 4GiB or 500M")
    flags = read_flags(os.environ)
    theirs = users_folder(flags)
    if theirs is not None and output is not None:
        raise CommandError(f"XLA_FLAGS already dumps to {theirs}: omit -o")
    target = None if no_page else page or (output / _KEPT_PAGE if output else Path(PAGE))
    began = time.time()
    with nullcontext() if theirs is not None else DumpFolder(output, limit) as ours:
        folder = None if ours is None else ours.path
        environment = with_dumps(os.environ, flags, folder, keeps_cache=with_cache)
        inherited = [] if ours is None or ours.alive < 0 else [ours.alive]
        ended = run_child(command_line, environment, inherited)
        if ours is not None:
            ours.settle()
        read = theirs or folder
        assert read is not None
        outcome = RunOutcome(read, began, ended.tail, 0 if ours is None else ours.dropped)
        say("\n".join(report_run(outcome, target)))
    return ended.code
