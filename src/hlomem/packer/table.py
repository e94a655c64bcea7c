"""Packing problems as CSV, in the format of MiniMalloc.

A header names `id`, `lower`, `upper`, `size` and optionally `alignment`, in any order; columns of
other names are kept. The solution adds a column `offset`. Lives are half-open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import ParseError
from hlomem.base.source import Source, Span
from hlomem.packer.buffers import Buffer, problem_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


NEEDED = ("id", "lower", "upper", "size")
KNOWN = (*NEEDED, "alignment")
OFFSET = "offset"
_NUMBER = r"(?a)-?\d{1,300}"
_FIELD = r'"(?:[^"\n]|"")*+"|[^",\n]*+'


class Row(NamedTuple):
    start: int
    text: str
    """Without the line end."""
    fields: list[Span]
    """In the source, quotes included."""


class Problem(NamedTuple):
    header: Row
    rows: list[Row]
    buffers: list[Buffer]


def read_problem(source: Source) -> Problem:
    """The buffers of a table; raises ParseError at the first wrong field."""
    rows = list(_rows(source))
    if not rows:
        raise ParseError(source, source.first_line, "no table here", _hint())
    header, *body = rows
    columns = _columns(source, header)
    buffers: list[Buffer] = []
    seen: dict[int | str, int] = {}
    for row in body:
        if len(row.fields) != len(header.fields):
            problem = f"{len(row.fields)} fields, but the header has {len(header.fields)}"
            raise ParseError(source, _whole(row), problem)
        buffer = _buffer(source, row, columns)
        if buffer.id in seen:
            first = source.position(seen[buffer.id]).line
            problem = f"the id `{buffer.id}` is also that of line {first}"
            raise ParseError(source, row.fields[columns["id"]], problem)
        seen[buffer.id] = row.start
        if problem := problem_of(buffer):
            raise ParseError(source, _whole(row), problem)
        buffers.append(buffer)
    return Problem(header, body, buffers)


def write_solution(problem: Problem, offset_of: Mapping[int | str, int]) -> Iterator[str]:
    """The lines of the table with offsets; an existing column is replaced."""
    names = [_text(problem.header, field) for field in problem.header.fields]
    old = names.index(OFFSET) if OFFSET in names else None
    yield _with_field(problem.header, old, OFFSET)
    for row, buffer in zip(problem.rows, problem.buffers, strict=True):
        yield _with_field(row, old, str(offset_of[buffer.id]))


def _with_field(row: Row, index: int | None, text: str) -> str:
    if index is None:
        return f"{row.text},{text}\n"
    field = row.fields[index]
    first, end = field.start - row.start, field.end - row.start
    return f"{row.text[:first]}{text}{row.text[end:]}\n"


def _rows(source: Source) -> Iterator[Row]:
    start = 1 if source.text.startswith("\ufeff") else 0
    while start < len(source.text):
        end = source.text.find("\n", start)
        end = len(source.text) if end < 0 else end
        text = source.text[start:end].removesuffix("\r")
        if text.strip():
            yield Row(start, text, _fields(source, start, start + len(text)))
        start = end + 1


def _fields(source: Source, start: int, end: int) -> list[Span]:
    fields = []
    pattern = re.compile(_FIELD)
    while True:
        match = pattern.match(source.text, start, end)
        assert match is not None
        fields.append(Span(*match.span()))
        if match.end() == end:
            return fields
        if source.text[match.end()] != ",":
            problem = "an unclosed quote, or text next to a quoted field"
            raise ParseError(source, Span(match.start(), end), problem)
        start = match.end() + 1


def _text(row: Row, field: Span) -> str:
    text = row.text[field.start - row.start : field.end - row.start].strip()
    if text.startswith('"'):
        return text[1:-1].replace('""', '"').strip()
    return text


def _columns(source: Source, header: Row) -> dict[str, int]:
    columns: dict[str, int] = {}
    for index, field in enumerate(header.fields):
        name = _text(header, field)
        if name in columns:
            raise ParseError(source, field, f"a second column `{name}`")
        columns[name] = index
    if missing := [f"`{name}`" for name in NEEDED if name not in columns]:
        noun = "column" if len(missing) == 1 else "columns"
        raise ParseError(source, _whole(header), f"no {noun} {', '.join(missing)}", _hint())
    return columns


def _hint() -> str:
    return f"the first line names the columns: {','.join(NEEDED)}, perhaps alignment"


def _buffer(source: Source, row: Row, columns: Mapping[str, int]) -> Buffer:
    numbers: dict[str, int] = {}
    for name in KNOWN[1:]:
        if name not in columns:
            continue
        field = row.fields[columns[name]]
        text = _text(row, field)
        if name == "alignment" and not text:
            continue
        if re.fullmatch(_NUMBER, text) is None:
            raise ParseError(source, field, f"`{text}` is not a number for `{name}`")
        numbers[name] = int(text)
    name = _text(row, row.fields[columns["id"]])
    lower, upper, size = (numbers[column] for column in NEEDED[1:])
    return Buffer(name, lower, upper, size, numbers.get("alignment", 1))


def _whole(row: Row) -> Span:
    return Span(row.start, row.start + max(1, len(row.text)))
