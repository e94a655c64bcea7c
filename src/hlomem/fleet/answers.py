"""Answers to ready questions: rows under columns, with what to know before and after them.

In: rows. Out: `Answer`, drawn for people or encoded for programs. Columns of bytes are drawn in
units, and stay integers as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.dump.records import Record
from hlomem.report.screens.text import Line, shorten, shorten_front, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence


_GAP = 2
_INDENT = 4
_LEAST = 8
"""Columns a text keeps, however many there are."""
_PATHS = frozenset({"line", "source"})
"""Texts whose ends tell most."""


class Answer(Record, frozen=True, kw_only=True):
    """An answer as data."""

    question: str
    run: str | None
    title: str
    """In a sentence."""
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    """By the names of the columns."""
    sizes: tuple[str, ...] = ()
    """The columns whose numbers are bytes."""
    below: str = ""
    """The column whose texts stand below their rows, one a line."""
    totals: dict[str, int] = msgspec.field(default_factory=dict)
    """Sums over all, not only over the rows that are listed."""
    notes: tuple[str, ...] = ()


def draw_answer(answer: Answer, columns: int) -> list[Line]:
    """The answer in so many columns."""
    lines: list[Line] = [[(line, "bold")] for line in wrap(answer.title, columns)]
    if answer.rows:
        head, *rows = draw_table(answer.columns, answer.rows, columns, answer.sizes)
        lines += [[], head]
        for row, drawn in zip(answer.rows, rows, strict=True):
            lines.append(drawn)
            for text in row[answer.below] if answer.below else ():
                lines += [[(line, "dim")] for line in wrap(text, columns, " " * _INDENT)]
    if answer.notes:
        lines.append([])
    lines += [[(line, "dim")] for note in answer.notes for line in wrap(note, columns)]
    return lines


def draw_table(
    names: Sequence[str], rows: Sequence[dict[str, Any]], columns: int, sizes: Sequence[str] = ()
) -> list[Line]:
    """Rows under the names of their columns; texts give way where there are too many."""
    cells = [[_cell(row.get(name), is_size=name in sizes) for name in names] for row in rows]
    numeric = [_is_numeric([row.get(name) for row in rows]) for name in names]
    widths = [
        max([len(name), *(len(row[place]) for row in cells)]) for place, name in enumerate(names)
    ]
    _fit(widths, numeric, columns)
    made: list[Line] = [[(_row(list(names), names, widths, numeric), "dim")]]
    made += [[(_row(row, names, widths, numeric), "")] for row in cells]
    return made


def _cell(value: object, *, is_size: bool) -> str:
    if value is None:
        return ""
    if is_size and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return visible(str(value))


def _is_numeric(values: list[object]) -> bool:
    return all(isinstance(value, int | float) for value in values if value is not None)


def _fit(widths: list[int], numeric: list[bool], columns: int) -> None:
    """Takes from the widest text, column by column, until a row fits or none can give more."""
    while sum(widths) + _GAP * (len(widths) - 1) > columns:
        texts = [place for place, is_number in enumerate(numeric) if not is_number]
        widest = max(texts, key=lambda place: widths[place], default=None)
        if widest is None or widths[widest] <= _LEAST:
            return
        widths[widest] -= 1


def _row(cells: list[str], names: Sequence[str], widths: list[int], numeric: list[bool]) -> str:
    made = []
    for cell, name, width, is_number in zip(cells, names, widths, numeric, strict=True):
        shown = (shorten_front if name in _PATHS else shorten)(cell, width)
        made.append(shown.rjust(width) if is_number else shown.ljust(width))
    return (" " * _GAP).join(made).rstrip()
