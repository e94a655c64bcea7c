"""The tables at the head of a module that say which line of Python made an instruction.

    FileNames          1 "/home/me/train.py"
    FunctionNames      1 "train_step"
    FileLocations      1 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=2 end_column=9}
    StackFrames        1 {file_location_id=1 parent_frame_id=1}

In: the text of the four tables. Out: the frames of an id, innermost first, and the text again.
Mirrors `HloModule::PrintStackFrameIndex` and `hlo/ir/stack_frames.cc`. A parent is printed one
higher than it is: `parent_frame_id=1` says that there is none. The tables are read when first
asked for, and a chain of parents that runs in a circle ends where it would repeat.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, NoReturn

from hlomem.base.errors import ParseError
from hlomem.base.patterns import lazy_pattern, repeated
from hlomem.base.source import Source, Span
from hlomem.hlo.text.attributes import unescape

TABLE_NAMES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")

_IN_QUOTES = repeated(r'[^"\\\n]++|\\.')
_ROW = lazy_pattern(rf'[ \t]*([0-9]{{1,18}}) (?:"({_IN_QUOTES})"|\{{([a-z0-9_= -]*+)\}})[ \t]*')
_FIELD = lazy_pattern(r"([a-z_]+)=(-?[0-9]{1,18})")

Row = str | dict[str, int]


class StackFrame(NamedTuple):
    """One call: where in the program, and which function."""

    file_name: str
    function_name: str
    line: int
    column: int
    end_line: int
    end_column: int


class StackFrameTables:
    """The four tables, by name, each a map from id to row."""

    def __init__(self, source: Source, span: Span) -> None:
        self._source = source
        self._span = span

    @classmethod
    def of_rows(cls, tables: dict[str, dict[int, Row]]) -> StackFrameTables:
        """Tables that were never text: names escaped, parents one higher than they are."""
        made = cls(Source("", ""), Span(0, 0))
        made.tables = tables
        return made

    @property
    def are_given(self) -> bool:
        """Whether there is anything in them; no row is read to say so."""
        start, end = self._span
        return bool(self.__dict__.get("tables") or self._source.text[start:end].strip())

    @cached_property
    def tables(self) -> dict[str, dict[int, Row]]:
        """The rows by table and id: the escaped text of a name, or the fields of a record."""
        tables: dict[str, dict[int, Row]] = {}
        rows: dict[int, Row] | None = None
        start, end = self._span
        while start < end:
            line_end = self._source.text.find("\n", start, end)
            line_end = end if line_end < 0 else line_end
            line = self._source.text[start:line_end].strip()
            if line in TABLE_NAMES:
                rows = tables.setdefault(line, {})
            elif line:
                number, row = self._parse_row(start, line_end)
                if rows is None or number in rows:
                    self._fail(start, line_end, f"row {number} is in no table or there twice")
                rows[number] = row
            start = line_end + 1
        return tables

    def frames(self, frame_id: int) -> list[StackFrame]:
        """The frame of an id and its callers, innermost first; empty where there is none."""
        frames: list[StackFrame] = []
        seen: set[int] = set()
        while frame_id not in seen:
            seen.add(frame_id)
            frame = self._record("StackFrames", frame_id)
            location = self._record("FileLocations", frame.get("file_location_id", 0))
            if not location:
                break
            frames.append(self._frame(location))
            frame_id = frame.get("parent_frame_id", 1) - 1
        return frames

    def format(self) -> str:
        """The tables as XLA prints them; empty where the module has none."""
        return "".join(
            f"\n{name}\n" + "".join(map(_format_row, rows.items()))
            for name, rows in self.tables.items()
        )

    def _frame(self, location: dict[str, int]) -> StackFrame:
        return StackFrame(
            self._name("FileNames", location.get("file_name_id", 0)),
            self._name("FunctionNames", location.get("function_name_id", 0)),
            *(location.get(field, 0) for field in ("line", "column", "end_line", "end_column")),
        )

    def _record(self, table: str, number: int) -> dict[str, int]:
        row = self.tables.get(table, {}).get(number)
        return row if isinstance(row, dict) else {}

    def _name(self, table: str, number: int) -> str:
        row = self.tables.get(table, {}).get(number)
        return unescape(row) if isinstance(row, str) else ""

    def _parse_row(self, start: int, end: int) -> tuple[int, Row]:
        match = _ROW.fullmatch(self._source.text, start, end)
        if match is None:
            self._fail(start, end, "not a row of a stack frame table")
        number, name, fields = match.groups()
        if name is not None:
            return int(number), name
        return int(number), {key: int(value) for key, value in _FIELD.findall(fields)}

    def _fail(self, start: int, end: int, problem: str) -> NoReturn:
        hint = 'a row reads `1 "name"` or `1 {file_location_id=1 parent_frame_id=1}`'
        raise ParseError(self._source, Span(start, end), problem, hint)


NO_TABLES = StackFrameTables(Source("", ""), Span(0, 0))
"""The tables of a module that says nothing of the program it comes from."""


def _format_row(item: tuple[int, Row]) -> str:
    number, row = item
    if isinstance(row, str):
        return f'{number} "{row}"\n'
    return f"{number} {{{' '.join(f'{key}={value}' for key, value in row.items())}}}\n"
