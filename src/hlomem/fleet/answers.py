"""Answers to predefined questions: a title, a table and notes, as data or drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.dump.records import Record
from hlomem.report.screens.text import Line, shorten, shorten_front, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence


_GAP = 2
_INDENT = 4
_LEAST = 8
"""The fewest cells of a text column."""
_PATHS = frozenset({"line", "source"})
"""Columns that are shortened at the front."""


class Answer(Record, frozen=True, kw_only=True):
    question: str = ""
    run: str | None = None
    title: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    sizes: tuple[str, ...] = ()
    """The columns in bytes."""
    below: str = ""
    """A column whose texts are shown below their rows, one per line."""
    totals: dict[str, int] = msgspec.field(default_factory=dict)
    """Sums over all rows, listed or not."""
    notes: tuple[str, ...] = ()


def draw_answer(answer: Answer, columns: int) -> list[Line]:
    lines = wrapped(answer.title, columns, style="bold")
    if answer.rows:
        head, *rows = draw_table(answer.columns, answer.rows, columns, answer.sizes)
        lines += [[], head]
        for row, drawn in zip(answer.rows, rows, strict=True):
            lines.append(drawn)
            for text in row[answer.below] if answer.below else ():
                lines += wrapped(text, columns, " " * _INDENT, "dim")
    if answer.notes:
        lines.append([])
    lines += [line for note in answer.notes for line in wrapped(note, columns, style="dim")]
    return lines


def draw_table(
    names: Sequence[str], rows: Sequence[dict[str, Any]], columns: int, sizes: Sequence[str] = ()
) -> list[Line]:
    """Rows below the names of their columns; texts are shortened to fit."""
    cells = [[_cell(row.get(name), is_size=name in sizes) for name in names] for row in rows]
    numeric = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in names]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
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


def _fit(widths: list[int], numeric: list[bool], columns: int) -> None:
    """Shrink the widest text column until a row fits or all are minimal."""
    texts = [index for index, is_number in enumerate(numeric) if not is_number]
    while sum(widths) + _GAP * (len(widths) - 1) > columns:
        widest = max(texts, key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= _LEAST:
            return
        widths[widest] -= 1


def _row(cells: list[str], names: Sequence[str], widths: list[int], numeric: list[bool]) -> str:
    made = []
    for cell, name, width, is_number in zip(cells, names, widths, numeric, strict=True):
        shown = (shorten_front if name in _PATHS else shorten)(cell, width)
        made.append(shown.rjust(width) if is_number else shown.ljust(width))
    return (" " * _GAP).join(made).rstrip()
