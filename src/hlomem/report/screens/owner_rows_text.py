"""Draws `OwnerRow`s: bytes, share, bar, owner, and the line below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.dump.file_names import author_name
from hlomem.report.screens.text import Line, bar, percent, plural, shorten, shorten_front, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.job.owner_rows import OwnerRow

_TOP = 12
_BAR = 10


def draw_owners(rows: Sequence[OwnerRow], whole: int, width: int) -> list[Line]:
    """The largest rows, and the sum of the rest."""
    lines = [line for row in rows[:_TOP] for line in _row(row, whole, width)]
    if rest := rows[_TOP:]:
        size = sum(row.size for row in rest)
        head = f"  {format_bytes(size):>10}  {percent(size, whole):>6}  "
        lines.append([(f"{head}{plural(len(rest), 'smaller owner')}", "dim")])
    return lines


def _row(row: OwnerRow, whole: int, width: int) -> list[Line]:
    head = f"  {format_bytes(row.size):>10}  {percent(row.size, whole):>6}  "
    room = width - len(head) - _BAR - 2
    name = f": {visible(author_name(row.name))}" if row.name else ""
    index = "" if row.allocation is None else f", allocation {row.allocation}"
    who = f"{f'{row.count} × ' if row.count > 1 else ''}{row.owner}{name}{index}"
    drawn: Line = [
        (head, ""),
        (f"{bar(row.size, whole, _BAR)}  ", "green"),
        (shorten(who, room), "cyan"),
    ]
    if not row.line:
        return [drawn]
    return [drawn, [(" " * (width - room) + shorten_front(visible(row.line), room), "dim")]]


def draw_notes(notes: Iterable[str], width: int) -> list[Line]:
    """Caveats."""
    return [line for note in notes for line in wrapped(note, width, "! ", "dim", "  ")]
