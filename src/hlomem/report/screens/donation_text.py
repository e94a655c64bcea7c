"""Draws a `Donation`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, plural, shorten, wrap, wrapped

if TYPE_CHECKING:
    from hlomem.report.data.donation import Argument, Donation

_MAX_LISTED = 12
_SHAPE = 8
"""The fewest columns worth a shape."""
_WORDS = {
    "lost": "donated, but no result reuses it",
    "possible": "not donated, though a result could reuse it",
    "read later": "not donated; a result could reuse it if it were written later",
    "used": "donated, reused by a result",
    "no match": "not donated, and no result could reuse it",
}
_STYLE = {
    "lost": "red",
    "possible": "yellow",
    "read later": "dim",
    "used": "green",
    "no match": "dim",
}


def draw_donation(donation: Donation, width: int) -> list[Line]:
    lines: list[Line] = [[(shorten(visible(donation.name), width), "bold")]]
    if not donation.rows:
        return [*lines, [(f"no argument lies in {visible(donation.space)} memory", "")]]
    lines += [
        [("Donated ", ""), (format_bytes(donation.used_size), "bold"), (" of arguments", "")],
        [(f"  {format_bytes(donation.possible_size)} more could be", "")],
    ]
    if not donation.is_declared_known:
        unknown = "without the HLO module, unused donations are unknown"
        lines += wrapped(unknown, width, "  ", "dim")
    for state in _WORDS:
        rows = [row for row in donation.rows if row.state == state]
        if rows:
            lines += [[], *_draw_state(state, rows, width)]
    return lines


def _draw_state(state: str, rows: list[Argument], width: int) -> list[Line]:
    total = format_bytes(sum(row.size for row in rows))
    head = f"  {total:>10}  "
    first, *rest = wrap(f"{_WORDS[state]}: {len(rows)}", width, " " * len(head))
    lines: list[Line] = [[(head, "bold"), (first[len(head) :], _STYLE[state])]]
    lines += [[(line, _STYLE[state])] for line in rest]
    for row in rows[:_MAX_LISTED]:
        lines += _draw_row(row, width)
    if others := rows[_MAX_LISTED:]:
        size = format_bytes(sum(row.size for row in others))
        lines.append([(f"  {size:>10}    {plural(len(others), 'smaller one')}", "dim")])
    return lines


def _draw_row(row: Argument, width: int) -> list[Line]:
    head = f"  {format_bytes(row.size):>10}    "
    cells = width - len(head)
    name = shorten(visible(row.name), cells)
    room = cells - len(name) - 2
    shape = f"  {shorten(visible(row.shape), room)}" if room > _SHAPE else ""
    first: Line = [(head, ""), (name, "bold"), (shape, "cyan")]
    if row.state == "used" and not row.copied_size:
        return [first]
    return [first, *wrapped(row.why, width, " " * len(head), "dim")]
