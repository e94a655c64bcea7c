"""`hlomem donate`: what becomes of the arguments' memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlomem.cli.subject import about_memory, write
from hlomem.report.data.donation import build_donation
from hlomem.report.screens.donation_text import draw_donation

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView, Space


@click.command("donate")
@about_memory
def command(memory: MemoryView, space: Space, as_json: bool) -> int:
    """Show which arguments give their memory to results, and which could.

    A donated argument (JAX: donate_argnums) is overwritten by a result of the same shape, layout
    and memory space, once nobody reads it any more. The rest says why not, and what it would save.
    """
    return write("donate", build_donation(memory, space), draw_donation, as_json)
