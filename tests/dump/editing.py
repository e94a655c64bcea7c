"""Change one field of a record, see which lines of the text change, and read small texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from msgspec import Struct
from msgspec.structs import replace

from hlomem.base.errors import HlomemError, ParseError
from hlomem.base.source import Source
from hlomem.dump.dump import join_parts
from hlomem.dump.parts import parse_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.dump.dump import Dump

T = TypeVar("T")
Path = tuple[str | int, ...]


def read(text: str) -> Dump:
    """The dump in one text."""
    return join_parts("d.txt", [parse_part(Source("d.txt", text))])


def kept_notes(dump: Dump) -> list[str]:
    """What was kept without being understood."""
    return [note.text for note in dump.notes if note.kind == "kept"]


def with_field(record: T, path: Path, value: Any) -> T:
    """`record` with another value at `path`: names of fields and indices of tuples."""
    step, *rest = path
    old: Any = record
    if isinstance(step, int):
        new = with_field(old[step], tuple(rest), value) if rest else value
        changed: Any = (*old[:step], new, *old[step + 1 :])
    else:
        new = with_field(getattr(old, step), tuple(rest), value) if rest else value
        changed = replace(old, **{step: new})
    return cast("T", changed)


def fields_in(record: Any) -> set[tuple[str, str]]:
    """Every record type in `record` with each of its fields."""
    found = set()
    if isinstance(record, tuple):
        return set().union(*map(fields_in, record))
    if isinstance(record, Struct):
        for name in record.__struct_fields__:
            found |= {(type(record).__name__, name)} | fields_in(getattr(record, name))
    return found


def field_at(record: Any, path: Path) -> tuple[str, str]:
    """The record type and the name of the last field on a path."""
    found = ("", "")
    for step in path:
        if isinstance(step, str):
            found = (type(record).__name__, step)
        record = record[step] if isinstance(step, int) else getattr(record, step)
    return found


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines between what two texts have in common at their beginnings and their ends."""
    old, new = before.split("\n"), after.split("\n")
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return old, new


def parse_error(parse: Callable[[Source], object], text: str) -> ParseError:
    """The error a reader raises on `text`."""
    with pytest.raises(ParseError) as caught:
        parse(Source("d.txt", text))
    return caught.value


def result_of(parse: Callable[[Source], T], text: str) -> T | HlomemError:
    """What a reader makes of `text`: its records, or its error; any other error escapes."""
    try:
        return parse(Source("d.txt", text))
    except HlomemError as error:
        return error


def line_starts(text: str) -> Iterator[int]:
    """The offset of every line, and of the end."""
    place = 0
    while place >= 0:
        yield place
        place = text.find("\n", place) + 1 or -1
