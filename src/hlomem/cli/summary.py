"""`hlomem summary`: a program's memory in one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.cli.arguments import MEMORY, with_memory
from hlomem.cli.parameters import declare, option
from hlomem.cli.screen import write
from hlomem.machines.capacity import parse_capacity
from hlomem.report.data.summary import build_summary
from hlomem.report.screens.summary_text import draw_summary

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView, Space


@declare(
    "summary",
    *MEMORY,
    option("--capacity", metavar="SIZE|CHIP", help="The device memory: 16GiB, v5e, h100, …"),
)
@with_memory
def command(memory: MemoryView, space: Space, capacity: str | None, **shown: Any) -> int:
    """Show a program's memory in one screen.

    DUMP is an input as for `show`; an HLO MODULE is planned first. The roles add up to the reserved
    bytes; the peak is replayed from live ranges.
    """
    size = parse_capacity(capacity) if capacity else None
    summary = build_summary(memory, space, size)
    return write("summary", summary, draw_summary, memory.dump, **shown)
