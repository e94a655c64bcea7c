"""`*-memory-usage-report.txt` in both its shapes, read and written.

Mirrors BufferAssignment::MemoryUsageReport and BufferAllocation::MemoryUsageReport of XLA's
service/buffer_assignment.cc: up to jaxlib 0.9.1 allocations sorted by size, later tables grouped
by memory space.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.base.errors import ParseError
from hlomem.base.source import Span
from hlomem.dump.assignment import (
    ROUNDED_SIZE,
    format_attributes,
    format_header,
    parse_attributes,
    parse_number,
)
from hlomem.dump.grammar import INT64, Form, parse_color, parse_offset, unexpected
from hlomem.dump.numbers import human_bytes
from hlomem.dump.records import (
    AllocationDetail,
    AllocationReport,
    AllocationRow,
    MemorySpace,
    ReportedAllocation,
    ShapeCount,
    SpaceReport,
    UsageReport,
    UsageRow,
    UsageTable,
)

if TYPE_CHECKING:
    from hlomem.base.source import Source

BY_SPACE = "Memory Space: "
BY_ALLOCATION = "\n\nAllocations sorted by size:\n"
_ROUNDED = r"[\d.]+[KMGTPE]?i?B"
_PERCENT = r"\( *([0-9]{1,9}|-?nan)%\); "

_TOTAL = (
    (rf"({INT64}) ", "a number of bytes"),
    (r"\(([^()\n]*)\)\n", "the rounded size in parentheses"),
)
_ROWS_TITLE = (
    "cumulative_size; total_size - cumulative_size; allocation\n"
    "------------------------------------------------------------------------------\n"
)
_HEADER = Form(
    ("Total bytes used: ", "`Total bytes used:`"),
    *_TOTAL,
    ("\nAllocations sorted by size:\n\n", "`Allocations sorted by size:`"),
    (_ROWS_TITLE, "the head of the list"),
)
_ROW = Form(
    (rf" *({_ROUNDED})", "a rounded size"),
    (_PERCENT, "a percentage in parentheses and `; `"),
    (rf" *({_ROUNDED}); ", "a rounded size and `; `"),
)
_DETAILS_TITLE = Form(
    ("\n\nAllocations sorted by size with their values:\n", "`Allocations sorted by size with`")
)
_REST = "The rest ({}) {} are less than ({})% of the total size and not shown.\n"
_REST_ALLOCATIONS = Form((_REST.format(INT64, "allocations", INT64), "the rest"))
_REST_VALUES = Form((r"(?:\t|  )" + _REST.format(INT64, "values", INT64), "the rest"))

_TABLE_TITLE = (
    "{0}cumulative_size;       size;       offset; used_by_n_values; shapes_list\n"
    "{0}------------------------------------------------------------\n"
)
_TABLE_ROW = Form(
    (rf"(?:\t|  ) *({_ROUNDED})", "a rounded size"),
    (_PERCENT, "a percentage in parentheses and `; `"),
    (rf" *({_ROUNDED}); ", "a rounded size and `; `"),
    (rf" *({INT64}); ", "a number, the offset"),
    (rf" *({INT64}); ", "a number, the count of values"),
    ("([^\n]+)\n", "a list of shapes"),
)
_SPACE = Form(
    (BY_SPACE, "`Memory Space:`"),
    (rf"([^\n]*?) \(color=({INT64})\)\n", "a name, `(color=` and a number"),
    ("Total bytes: ", "`Total bytes:`"),
    *_TOTAL,
)
_BLANK = Form(("\n", "an empty line"))
_SHAPE_DELIMITER = r"[(\[{]|[)\]}]|, "


def parse(source: Source, start: int = 0, end: int | None = None) -> UsageReport:
    """The report in [start, end), of either shape."""
    end = len(source.text) if end is None else end
    by_space = source.text.startswith(BY_SPACE, start)
    report = (_parse_by_space if by_space else _parse_by_allocation)(source, start, end)
    _refuse_other_spacing(source, start, end, format(report))
    return report


def _refuse_other_spacing(source: Source, start: int, end: int, printed: str) -> None:
    """Columns are padded with spaces, which the records do not keep: they must be XLA's."""
    if source.text[start:end] == printed:
        return
    place = start
    for found, wanted in zip(source.text[start:end].split("\n"), printed.split("\n"), strict=True):
        if found != wanted:
            problem = "the columns are not spaced as XLA spaces them"
            raise ParseError(source, Span(place, place + len(found)), problem)
        place += len(found) + 1


def _parse_total(source: Source, match: re.Match[str], group: int) -> int:
    total = int(match[group])
    if match[group + 1] != human_bytes(total):
        problem = f"expected `{human_bytes(total)}`, which {total} bytes are"
        raise ParseError(source, Span(*match.span(group + 1)), problem)
    return total


def _parse_by_space(source: Source, start: int, end: int) -> SpaceReport:
    place, spaces = start, []
    while place < end:
        match = _SPACE.require(source, place, end)
        place, tables = match.end(), []
        while source.text.startswith("  ", place, end):
            table, place = _parse_table(source, place, end, prefix="  ")
            tables.append(table)
            place = _BLANK.require(source, place, end).end()
        place = _BLANK.require(source, place, end).end()
        spaces.append(
            MemorySpace(
                name=match[1],
                color=parse_color(match[2]),
                total_bytes=_parse_total(source, match, 3),
                tables=tuple(tables),
            )
        )
    return SpaceReport(spaces=tuple(spaces))


def _parse_by_allocation(source: Source, start: int, end: int) -> AllocationReport:
    header = _HEADER.require(source, start, end)
    place, rows, details = header.end(), [], []
    while (match := _ROW.match(source.text, place, end)) is not None:
        allocation, place = _parse_allocation(source, match.end(), end)
        cumulative, percent, remaining = match.groups()
        rows.append(
            AllocationRow(
                cumulative=cumulative,
                percent=_percent(percent),
                remaining=remaining,
                allocation=allocation,
            )
        )
    rest = _REST_ALLOCATIONS.match(source.text, place, end)
    place = _DETAILS_TITLE.require(source, rest.end() if rest else place, end).end()
    while place < end:
        allocation, place = _parse_allocation(source, place, end)
        table = None
        if source.text.startswith("\n", place, end):
            table, place = _parse_table(source, place + 1, end, prefix="\t")
            place = _BLANK.require(source, place, end).end()
        details.append(AllocationDetail(allocation=allocation, table=table))
    listed = len(rows) + (int(rest[1]) if rest else 0)
    if len(details) < listed:
        raise unexpected(source, place, f"{listed} allocations with their values")
    return AllocationReport(
        total_bytes=_parse_total(source, header, 1),
        rows=tuple(rows),
        rest=int(rest[1]) if rest else None,
        rest_percent=int(rest[2]) if rest else 5,
        details=tuple(details),
    )


def _parse_allocation(source: Source, start: int, end: int) -> tuple[ReportedAllocation, int]:
    index, place = parse_number(source, start, end)
    size = ROUNDED_SIZE.require(source, place, end)
    attributes, place = parse_attributes(source, size.end(), end)
    fields = {name: getattr(attributes, name) for name in attributes.__struct_fields__}
    return ReportedAllocation(index=index, size=size[1], **fields), place


def _parse_table(source: Source, start: int, end: int, prefix: str) -> tuple[UsageTable, int]:
    title = _TABLE_TITLE.format(prefix)
    if not source.text.startswith(title, start, end):
        raise unexpected(source, start, "the head of a table of values")
    place, rows = start + len(title), []
    while (match := _TABLE_ROW.match(source.text, place, end)) is not None:
        cumulative, percent, size, offset, count, shapes = match.groups()
        rows.append(
            UsageRow(
                cumulative=cumulative,
                percent=_percent(percent),
                size=size,
                offset=parse_offset(offset),
                value_count=int(count),
                shapes=_parse_shapes(shapes),
            )
        )
        place = match.end()
    rest = _REST_VALUES.match(source.text, place, end)
    if rest is None and not source.text.startswith("\n", place, end):
        raise _TABLE_ROW.explain(source, place, end)
    return UsageTable(
        rows=tuple(rows),
        rest=int(rest[1]) if rest else None,
        rest_percent=int(rest[2]) if rest else 5,
    ), rest.end() if rest else place


def _percent(text: str) -> int | str:
    return text if text.endswith("nan") else int(text)


def _parse_shapes(text: str) -> tuple[ShapeCount, ...]:
    """`2×f32[8], (s32[], f32[2])`: commas inside a shape do not separate."""
    items, depth, start = [], 0, 0
    for delimiter in re.finditer(_SHAPE_DELIMITER, text):
        if delimiter.group() != ", ":
            depth += 1 if delimiter.group() in "([{" else -1
        elif depth == 0:
            items.append(text[start : delimiter.start()])
            start = delimiter.end()
    items.append(text[start:])
    return tuple([_shape_count(item) for item in items])


def _shape_count(item: str) -> ShapeCount:
    count, times, shape = item.partition("×")
    if times and count.isdecimal() and len(count) < 19 and int(count) > 1:
        return ShapeCount(shape=shape, count=int(count))
    return ShapeCount(shape=item)


def format(report: UsageReport) -> str:  # noqa: A001 - the opposite of parse
    """XLA's text."""
    if isinstance(report, SpaceReport):
        return "".join(map(_format_space, report.spaces))
    return _format_by_allocation(report)


def _format_space(space: MemorySpace) -> str:
    total = f"{space.total_bytes} ({human_bytes(space.total_bytes)})"
    tables = "".join([_format_table(table, "  ") + "\n" for table in space.tables])
    return f"{BY_SPACE}{space.name} (color={space.color})\nTotal bytes: {total}\n{tables}\n"


def _format_by_allocation(report: AllocationReport) -> str:
    total = report.total_bytes
    parts = [f"Total bytes used: {total} ({human_bytes(total)}){BY_ALLOCATION}\n{_ROWS_TITLE}"]
    for row in report.rows:
        allocation = _format_allocation(row.allocation)
        parts.append(f"{row.cumulative:>10}({row.percent:>3}%); {row.remaining:>10}; {allocation}")
    if report.rest is not None:
        parts.append(_format_rest(report.rest, "allocations", report.rest_percent))
    parts.append("\n\nAllocations sorted by size with their values:\n")
    for detail in report.details:
        parts.append(_format_allocation(detail.allocation))
        if detail.table is not None:
            parts.append(f"\n{_format_table(detail.table, chr(9))}\n")
    return "".join(parts)


def _format_allocation(allocation: ReportedAllocation) -> str:
    return format_header(allocation.index, allocation.size, format_attributes(allocation))


def _format_table(table: UsageTable, prefix: str) -> str:
    parts = [_TABLE_TITLE.format(prefix)]
    for row in table.rows:
        shapes = ", ".join(
            [
                shape.shape if shape.count == 1 else f"{shape.count}×{shape.shape}"
                for shape in row.shapes
            ]
        )
        parts.append(
            f"{prefix}{row.cumulative:>9}({row.percent:>3}%); {row.size:>10}; "
            f"{row.offset:>12}; {row.value_count:>16}; {shapes}\n"
        )
    if table.rest is not None:
        parts.append(prefix + _format_rest(table.rest, "values", table.rest_percent))
    return "".join(parts)


def _format_rest(count: int, what: str, percent: int) -> str:
    return f"The rest {count} {what} are less than {percent}% of the total size and not shown.\n"
