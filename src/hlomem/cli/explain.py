"""`hlomem explain`: one buffer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from hlomem.cli.arguments import about_memory
from hlomem.cli.screen import write
from hlomem.report.data.explain import explain
from hlomem.report.data.lookup import find_buffer
from hlomem.report.screens.explain_text import draw_explanation

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView, Space


@click.command("explain")
@about_memory
@click.argument("buffer")
@click.option(
    "--frames",
    type=click.Choice(["user", "all"]),
    default="user",
    help="The line of user code, or the whole call stack.",
)
def command(memory: MemoryView, space: Space, buffer: str, frames: str, **shown: Any) -> int:  # noqa: ARG001 - a buffer knows its space
    """Explain one buffer: its purpose, size, lifetime and location.

    DUMP is an input as for `show`; an HLO MODULE is planned first. BUFFER is a name as XLA prints
    it, `copy.3` or `while.5{1}`; for an instruction with several buffers, the largest is shown.
    """
    told = explain(memory, find_buffer(memory, buffer))
    draw = partial(draw_explanation, all_frames=frames == "all")
    return write("explanation", told, draw, memory.dump, **shown)
