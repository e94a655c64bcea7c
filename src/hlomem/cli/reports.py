"""Commands that only show a report: one for each row of `REPORTS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hlomem.cli.arguments import about_memory
from hlomem.cli.screen import write
from hlomem.report.registry import REPORTS

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView, Space


def build_command(name: str) -> click.Command:
    report = REPORTS[name]

    @about_memory
    def show(memory: MemoryView, space: Space, **shown: Any) -> int:
        return write(name, report.build(memory, space), report.draw, memory.dump, **shown)

    return click.command(name, help=report.help)(show)
