"""`hlomem peak`: the buffers alive at the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hlomem.base.errors import CommandError
from hlomem.cli.arguments import about_memory
from hlomem.cli.screen import write
from hlomem.report.data.branches import DEFAULT_DEPTH
from hlomem.report.data.peak import KEYS, Key, build_snapshot
from hlomem.report.screens.peak_text import draw_snapshot

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView, Space


_ROWS = 10


@click.command("peak")
@about_memory
@click.option("--at", metavar="NUMBER|NAME", help="An instruction; by default the peak.")
@click.option("--by", type=click.Choice(KEYS), default="buffer", show_default=True)
@click.option(
    "--depth", type=click.IntRange(1), metavar="N", help="Levels of --by arg and scope; 2."
)
@click.option("--top", type=click.IntRange(1), metavar="N", help="Rows; 10, in JSON all.")
def command(
    memory: MemoryView,
    space: Space,
    as_json: bool,
    at: str | None,
    by: Key,
    depth: int | None,
    top: int | None,
    **shown: Any,
) -> int:
    """Show the buffers alive at the peak.

    DUMP is an input as for `show`; an HLO MODULE is planned first. The peak is replayed from live
    ranges: shared bytes count once, and memory of arguments and results counts all the time. If XLA
    prints another number, the difference is explained.
    """
    if depth is not None and by not in {"arg", "scope"}:
        raise CommandError("`--depth` goes with `--by arg` and `--by scope`")
    rows = top or (None if as_json else _ROWS)
    snapshot = build_snapshot(memory, space, at, by, rows, depth or DEFAULT_DEPTH)
    return write("peak", snapshot, draw_snapshot, memory.dump, as_json=as_json, **shown)
