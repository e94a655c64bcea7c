"""`hlomem explain`: the story of one buffer."""

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
    help="The line you wrote, or every call that led to it.",
)
def command(memory: MemoryView, space: Space, buffer: str, frames: str, **shown: Any) -> int:  # noqa: ARG001 - a buffer knows its space
    """Explain one buffer: why it exists, its size, its life, its place.

    DUMP is what `show` takes; an HLO MODULE is planned first. BUFFER is a name as XLA prints it,
    `copy.3` or `while.5{1}`; of an instruction with several the largest is taken.
    """
    told = explain(memory, find_buffer(memory, buffer))
    draw = partial(draw_explanation, all_frames=frames == "all")
    return write("explanation", told, draw, memory.dump, **shown)
