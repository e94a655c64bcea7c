"""`hlomem copies`: what is there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlomem.cli.subject import about_memory, write
from hlomem.report.data.copies import build_copies
from hlomem.report.screens.copies_text import draw_copies

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView, Space


@click.command("copies")
@about_memory
def command(memory: MemoryView, space: Space, as_json: bool) -> int:
    """Show copies that cost memory, and why each is made.

    XLA copies to change a layout, to move a value to another memory space, and to keep a value
    that something else would overwrite.
    """
    return write("copies", build_copies(memory, space), draw_copies, as_json)
