"""Screens as commands print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.source import visible
from hlomem.report.screens.text import Line, shorten_front, width, write_lines

if TYPE_CHECKING:
    from hlomem.dump.dump import Dump


def write_screen(lines: list[Line], dump: Dump | None) -> None:
    """Prints a screen whose first line names a dump, and says there if it is one of several."""
    if dump is not None and dump.chosen:
        said = f", {dump.chosen}; --module chooses another"
        title = "".join(piece for piece, _ in lines[0])
        is_title = title == visible(dump.title)
        if is_title and len(title) + len(said) <= width():
            lines = [[*lines[0], (said, "dim")], *lines[1:]]
        else:
            name = shorten_front(visible(dump.title), width() - len(said))
            lines = [[(name, "bold"), (said, "dim")], *(lines[1:] if is_title else lines)]
    write_lines(lines)
