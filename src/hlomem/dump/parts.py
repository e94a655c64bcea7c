"""One of XLA's files: records and the text around them, so that printing restores every byte."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.base.errors import InputError, ParseError
from hlomem.base.source import Source, Span, visible
from hlomem.dump import assignment, live_range, usage_report, values
from hlomem.dump.eras import Era, Features
from hlomem.dump.grammar import unexpected
from hlomem.dump.records import Record, SpaceReport

if TYPE_CHECKING:
    from hlomem.dump.file_names import Kind
    from hlomem.dump.records import Allocation, Assignment, LiveRanges, UsageReport, Values

_VALUES_START = "\n\nTotal bytes used: "
_LIVE_RANGE_START = "\n\n" + live_range.TITLE
_ONE_LINE_OPERANDS = r"%\S+ = \S+ [\w-]+\((?:(%)|\(*[a-z]\w*\[)"
_LOG_LINE = (
    r"(?m)^(?:[IWEF]\d{4} \d\d:\d\d:\d\d"  # glog, absl
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d"  # tsl, and most formats of Python's logging
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):)[^\n]*\n"
)
_BOM = "\ufeff"
_UNDECODABLE = "[\udc80-\udcff]"


class ForeignLine(Record, frozen=True, kw_only=True):
    """A line that does not belong to the dump, and its line number (from 1)."""

    line: int
    text: str


class Wrapping(Record, frozen=True, kw_only=True):
    has_bom: bool = False
    has_crlf: bool = False
    foreign_lines: tuple[ForeignLine, ...] = ()
    undecodable_line: int | None = None
    """The first line with bytes that are not UTF-8, which are kept as surrogates."""

    def restore(self, text: str) -> str:
        if self.foreign_lines:
            lines, wrapped = iter(text.split("\n")), list[str]()
            for foreign in self.foreign_lines:
                wrapped += islice(lines, foreign.line - 1 - len(wrapped))
                wrapped.append(foreign.text)
            text = "\n".join([*wrapped, *lines])
        if self.has_crlf:
            text = text.replace("\n", "\r\n")
        return _BOM + text if self.has_bom else text


class Contents(NamedTuple):
    assignment: Assignment | None = None
    values: Values | None = None
    live_ranges: LiveRanges | None = None
    report: UsageReport | None = None

    def of_file(self, kind: Kind) -> Contents:
        if kind == "combined":
            return self._replace(report=None)
        field = "live_ranges" if kind == "live-range" else kind
        return Contents(**{field: getattr(self, field)})


class Part(NamedTuple):
    name: str
    kind: Kind
    contents: Contents
    seen: Features
    wrapping: Wrapping


def parse_part(source: Source) -> Part:
    """The records of a text; raises `ParseError` if it is not a dump."""
    plain, wrapping = _unwrap(source)
    try:
        return _parse_plain(plain, wrapping)
    except ParseError as error:
        removed = list(re.finditer(_LOG_LINE, plain.text))
        if not removed:
            raise
        return _parse_around(plain, wrapping, removed, error)


def parse_headers(source: Source) -> list[Allocation]:
    """The allocations of a text without their values: for one that is only measured."""
    plain, _ = _unwrap(source)
    end = plain.text.find(_VALUES_START)
    return assignment.parse_headers(plain, len(plain.text) if end < 0 else end + 1)


def _unwrap(source: Source) -> tuple[Source, Wrapping]:
    text = source.text
    if not text:
        where = f"{visible(source.name)}:1:1"
        raise InputError(f"{where}: the file is empty; expected a dump XLA wrote")
    if text.isascii() and "\r" not in text:
        return source, Wrapping()
    has_bom = text.startswith(_BOM)
    text = text[1:] if has_bom else text
    has_crlf = "\r\n" in text
    if has_crlf:
        text = _without_crlf(Source(source.name, text))
    plain = Source(source.name, text)
    try:
        text.encode()  # several times as fast as a search for surrogates
        odd = None
    except UnicodeEncodeError:
        odd = re.search(_UNDECODABLE, text)
    return plain, Wrapping(
        has_bom=has_bom,
        has_crlf=has_crlf,
        undecodable_line=plain.position(odd.start()).line if odd else None,
    )


def _without_crlf(source: Source) -> str:
    odd = re.search(r"(?<!\r)\n", source.text)
    if odd is not None:
        problem = r"the line ends with \n, other lines with \r\n"
        raise ParseError(source, Span(odd.start(), odd.start()), problem, "give all one ending")
    return source.text.replace("\r\n", "\n")


def _parse_around(
    source: Source, wrapping: Wrapping, log_lines: list[re.Match[str]], first: ParseError
) -> Part:
    """The dump without log lines; errors keep their positions."""
    clean = Source(source.name, re.sub(_LOG_LINE, "", source.text))
    foreign, number, cursor = [], 1, 0
    for line in log_lines:
        number += source.text.count("\n", cursor, line.start())
        cursor = line.start()
        foreign.append(ForeignLine(line=number, text=line.group().rstrip("\n")))
    around = replace(wrapping, foreign_lines=tuple(foreign))
    try:
        return _parse_plain(clean, around)
    except ParseError as error:
        start, end = error.span
        for line in log_lines:
            if line.start() <= start:
                start, end = start + len(line.group()), end + len(line.group())
        raise ParseError(source, Span(start, end), error.problem, error.hint) from first


def _parse_plain(source: Source, wrapping: Wrapping) -> Part:
    kind = kind_of(source)
    if kind == "combined":
        contents, seen = _parse_combined(source)
    elif kind == "assignment":
        contents = Contents(assignment=assignment.parse(source))
        seen = Features(split=True)
    elif kind == "values":
        style = _features_of_values(source, 0, len(source.text), newline=True)
        contents = Contents(values=values.parse(source, Era("?", style).style))
        seen = Features(split=True).merged_with(style)
    elif kind == "live-range":
        contents = Contents(live_ranges=live_range.parse(source))
        seen = Features(split=True)
    else:
        contents, seen = Contents(report=usage_report.parse(source)), Features()
    return Part(source.name, kind, contents, seen.merged_with(_features_of(contents)), wrapping)


def kind_of(source: Source) -> Kind:
    text = source.text
    if text.startswith(assignment.TITLE):
        return "combined" if _VALUES_START in text else "assignment"
    if text.startswith("\nTotal bytes used: "):
        return "values"
    if text.startswith(live_range.TITLE):
        return "live-range"
    if text.startswith((usage_report.BY_SPACE, "Total bytes used: ")):
        return "report"
    raise _foreign(source)


def _foreign(source: Source) -> ParseError:
    text = source.text
    hint = "a dump comes from XLA_FLAGS=--xla_dump_to=DIR --xla_dump_hlo_as_text"
    if "\0" in text[:4096]:
        hint = "this is a binary file; " + hint
    elif text.startswith("HloModule"):
        hint = "this is an HLO module; the dump is the file *-buffer-assignment.txt next to it"
    error = unexpected(source, 0, "`BufferAssignment:`, the start of an XLA memory dump")
    return ParseError(source, error.span, error.problem, hint)


def _parse_combined(source: Source) -> tuple[Contents, Features]:
    text = source.text
    start = text.index(_VALUES_START) + 1
    end = text.find(_LIVE_RANGE_START, start)
    if end < 0:
        # The reader of values reports where they are truncated, if they are.
        style = _features_of_values(source, start, len(text), newline=None)
        values.parse(source, Era("?", style).style, start)
        raise unexpected(source, len(text), "two empty lines and `HloLiveRange`")
    style = _features_of_values(source, start, end, newline=None)
    contents = Contents(
        assignment.parse(source, 0, start),
        values.parse(source, Era("?", style).style, start, end),
        live_range.parse(source, end + 2),
    )
    return contents, Features(split=False).merged_with(style)


def _features_of_values(source: Source, start: int, end: int, *, newline: bool | None) -> Features:
    """The style of the values in [start, end); `newline` if it is known."""
    text = source.text
    at = text.find(" from instruction:", start, end)
    if at < 0:
        return Features()
    line_end = text.find("\n", at, end)
    if newline is None:
        newline = line_end >= 0 and not text.startswith("\n positions:\n", line_end)
    says_none: bool | None = None
    if text.find("\n uses:\n  (none)\n", start, end) >= 0:
        says_none = True
    elif text.find("\n uses:\n from instruction:", start, end) >= 0:
        says_none = False
    return Features(
        space_before_instruction=text.startswith(" ", at + len(" from instruction:")),
        newline_after_instruction=newline,
        says_none=says_none,
    )


def _features_of(contents: Contents) -> Features:
    seen = Features()
    if contents.assignment is not None and contents.assignment.allocations:
        pages = any(allocation.page is not None for allocation in contents.assignment.allocations)
        seen = seen.merged_with(Features(pages=pages))
    if contents.values is not None:
        seen = seen.merged_with(Features(operand_shapes=_has_operand_shapes(contents.values)))
    if contents.live_ranges is not None and (peak := contents.live_ranges.peak) is not None:
        seen = seen.merged_with(Features(stack_trace=peak.stack_trace is not None))
        if peak.buffers:
            largest = peak.buffers[0]
            index, cumulative = largest.index is not None, largest.cumulative is not None
            seen = seen.merged_with(Features(peak_index=index, peak_cumulative=cumulative))
    if contents.report is not None:
        by_space = isinstance(contents.report, SpaceReport)
        seen = seen.merged_with(
            Features(report=frozenset({"by-space" if by_space else "by-allocation"}))
        )
    return seen


def _has_operand_shapes(used: Values) -> bool | None:
    for value in used.values:
        match = re.match(_ONE_LINE_OPERANDS, value.instruction)
        if match is not None:
            return match[1] is None
    return None


def format_part(kind: Kind, contents: Contents, era: Era) -> str:
    allocations, used, live, report = contents
    if kind == "report":
        assert report is not None
        return usage_report.format(report)
    pieces = []
    if kind in {"combined", "assignment"}:
        assert allocations is not None
        pieces.append(assignment.format(allocations, pages=era.features.pages is not False))
    if kind in {"combined", "values"}:
        assert used is not None
        pieces.append(values.format(used, era.style))
    if kind in {"combined", "live-range"}:
        assert live is not None
        pieces.append("\n\n" if kind == "combined" else "")
        pieces.append(
            live_range.format(
                live,
                index=era.features.peak_index is not False,
                cumulative=era.features.peak_cumulative is not False,
                stack_trace=era.features.stack_trace is not False,
            )
        )
    return "".join(pieces)
