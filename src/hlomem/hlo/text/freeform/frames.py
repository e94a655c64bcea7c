"""The tables of stack frames, and the numbers that instructions have in them.

In: tokens, at `FileNames`, and metadata that names frames by number. Out: tables of the frames that
are named, numbered as XLA numbers them. Mirrors `ParseStackFrameIndex` of
`hlo/parser/hlo_parser.cc`, `HloModule::CanonicalizeStackFrameIds` and `hlo/ir/stack_frames.cc`.
Fields that releases before 2026 did not print are 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.text.freeform.values import braced, read_short_integer
from hlomem.hlo.text.stack_frames import TABLE_NAMES
from hlomem.hlo.text.strings import escape

if TYPE_CHECKING:
    from hlomem.hlo.text.freeform.tokens import Tokens

_LOCATION = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")
_FRAME = ("file_location_id", "parent_frame_id")
_NUMBER = lazy_pattern(r" ?stack_frame_id=(-?[0-9]++)(?=\}| metadata_payload=)")


class Frames(Struct, eq=False):
    """The four tables, by number from 1 on."""

    files: list[Any] = []
    functions: list[Any] = []
    locations: list[Any] = []
    frames: list[Any] = []
    """Location and parent; 0 where there is none."""

    def format(self) -> str:
        """As XLA prints them; empty where there is no frame."""
        if not self.frames:
            return ""
        tables = (
            [f'"{escape(name)}"' for name in self.files],
            [f'"{escape(name)}"' for name in self.functions],
            [_format_fields(_LOCATION, row) for row in self.locations],
            [_format_fields(_FRAME, (at, up + 1)) for at, up in self.frames],
        )
        return "".join(
            f"\n{name}\n" + "".join(f"{number} {row}\n" for number, row in enumerate(rows, 1))
            for name, rows in zip(TABLE_NAMES, tables, strict=True)
        )


def _format_fields(names: tuple[str, ...], row: tuple[int, ...]) -> str:
    return braced([f"{name}={value}" for name, value in zip(names, row, strict=True)], " ")


def read_frames(tokens: Tokens) -> Frames:
    """The tables, where there are some."""
    tables: list[list[Any]] = []
    for name in TABLE_NAMES if tokens.kind == TABLE_NAMES[0] else ():
        rows: list[Any] = []
        tokens.expect(name)
        while tokens.eat("integer"):
            rows.append(_read_row(tokens, name))
        tables.append(rows)
    return Frames(*tables)


def _read_row(tokens: Tokens, table: str) -> str | tuple[int, ...]:
    if table.endswith("Names"):
        return tokens.expect("string")
    names = _LOCATION if table == "FileLocations" else _FRAME
    fields = tokens.fields(dict.fromkeys(names, read_short_integer), "a row")
    numbers = [int(fields[name].data) if name in fields else 0 for name in names]
    return tuple(numbers) if names is _LOCATION else (numbers[0], max(numbers[1] - 1, 0))


class FrameNumbers:
    """The frames that are named, in the order of their first use."""

    def __init__(self, given: Frames) -> None:
        self._given = given
        self._new_id: dict[int, int] = {0: 0}
        self.used = Frames()
        self._known: dict[object, int] = {}

    def renumber(self, metadata: str) -> str:
        """Metadata with the new number of its frame; without one where there is no such frame."""
        match = _NUMBER.search(metadata)
        if match is None:
            return metadata
        number = self._intern(int(match[1])) if len(match[1]) < 10 else 0
        blank = " " if match[0][0] == " " else ""
        shown = f"{blank}stack_frame_id={number}" if number else ""
        return metadata[: match.start()] + shown + metadata[match.end() :]

    def _intern(self, number: int) -> int:
        """The new number of a frame, whose callers come before it; 0 for one that is missing."""
        path: list[int] = []
        while number not in self._new_id:
            if not 0 < number <= len(self._given.frames) or len(path) > len(self._given.frames):
                return 0
            path.append(number)
            number = self._given.frames[number - 1][1]
        parent = self._new_id[number]
        for frame in reversed(path):
            parent = self._new_id[frame] = self._take(self._given.frames[frame - 1][0], parent)
        return parent

    def _take(self, location: int, parent: int) -> int:
        given, used = self._given, self.used
        if not 0 < location <= len(given.locations):
            return 0
        file, function, *numbers = given.locations[location - 1]
        if not (0 < file <= len(given.files) and 0 < function <= len(given.functions)):
            return 0
        file_id = self._id_of(used.files, given.files[file - 1])
        function_id = self._id_of(used.functions, given.functions[function - 1])
        location_id = self._id_of(used.locations, (file_id, function_id, *numbers))
        return self._id_of(used.frames, (location_id, parent))

    def _id_of(self, rows: list[Any], row: object) -> int:
        """The number of a row in a table, to which it is added where it is new."""
        key = (id(rows), row)
        if key not in self._known:
            rows.append(row)
            self._known[key] = len(rows)
        return self._known[key]
