"""`hlomem padding`: what layouts cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlomem.cli.subject import about_memory, write
from hlomem.report.data.padding import build_padding
from hlomem.report.screens.padding_text import draw_padding

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView, Space


@click.command("padding")
@about_memory
def command(memory: MemoryView, space: Space, as_json: bool) -> int:
    """Show which arrays are larger in memory than their elements.

    On TPU a layout has tiles, and an array fills whole ones: 513 rows in tiles of 8 take 520.
    Shapes are listed by what they cost at the peak, each with the dimensions that grow.
    """
    return write("padding", build_padding(memory, space), draw_padding, as_json)
