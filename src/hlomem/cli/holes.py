"""`hlomem holes`: what packing lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlomem.cli.subject import about_memory, write
from hlomem.report.data.holes import build_holes
from hlomem.report.screens.holes_text import draw_holes

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView, Space


@click.command("holes")
@about_memory
def command(memory: MemoryView, space: Space, as_json: bool) -> int:
    """Show memory that is reserved for temporaries but never filled.

    An allocation is larger than the most that is alive in it at once when a buffer that stays lies
    above bytes that are free. Each such hole is shown with the buffer above it.
    """
    return write("holes", build_holes(memory, space), draw_holes, as_json)
