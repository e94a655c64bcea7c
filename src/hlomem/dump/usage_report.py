"""`*-memory-usage-report.txt`, both shapes (MemoryUsageReport of service/buffer_assignment.cc)."""

from __future__ import annotations

import re

from msgspec.structs import asdict

from hlomem.base.errors import ParseError
from hlomem.base.source import Source, Span
from hlomem.dump.assignment import (
    ROUNDED_SIZE,
    format_attributes,
    format_header,
    parse_attributes,
    parse_number,
)
from hlomem.dump.grammar import INT64, Form, human_bytes, parse_color, parse_offset, unexpected
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
from hlomem.dump.values import TOTAL_PIECES, parse_total

BY_SPACE = "Memory Space: "
BY_ALLOCATION = "\n\nAllocations sorted by size:\n"
_ROUNDED = r"[\d.]+[KMGTPE]?i?B"
_PERCENT = r"\( *([0-9]{1,9}|-?nan)%\); "

_ROWS_TITLE = (
    "cumulative_size; total_size - cumulative_size; allocation\n"
    "------------------------------------------------------------------------------\n"
)
_HEADER = Form(
    ("Total bytes used: ", "`Total bytes used:`"),
    *TOTAL_PIECES,
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
    *TOTAL_PIECES,
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
    """Refuse columns that are not padded as XLA does, since records do not keep the padding."""
    if source.text[start:end] == printed:
        return
    cursor = start
    for found, wanted in zip(source.text[start:end].split("\n"), printed.split("\n"), strict=True):
        if found != wanted:
            problem = "the columns are not spaced as XLA spaces them"
            raise ParseError(source, Span(cursor, cursor + len(found)), problem)
        cursor += len(found) + 1


def _parse_by_space(source: Source, start: int, end: int) -> SpaceReport:
    cursor, spaces = start, []
    while cursor < end:
        match = _SPACE.require(source, cursor, end)
        cursor, tables = match.end(), []
        while source.text.startswith("  ", cursor, end):
            table, cursor = _parse_table(source, cursor, end, prefix="  ")
            tables.append(table)
            cursor = _BLANK.require(source, cursor, end).end()
        cursor = _BLANK.require(source, cursor, end).end()
        spaces.append(
            MemorySpace(
                name=match[1],
                color=parse_color(match[2]),
                total_bytes=parse_total(source, match, 3),
                tables=tuple(tables),
            )
        )
    return SpaceReport(spaces=tuple(spaces))


def _parse_by_allocation(source: Source, start: int, end: int) -> AllocationReport:
    header = _HEADER.require(source, start, end)
    cursor, rows, details = header.end(), [], []
    while (match := _ROW.match(source.text, cursor, end)) is not None:
        allocation, cursor = _parse_allocation(source, match.end(), end)
        cumulative, percent, remaining = match.groups()
        rows.append(
            AllocationRow(
                cumulative=cumulative,
                percent=_percent(percent),
                remaining=remaining,
                allocation=allocation,
            )
        )
    rest = _REST_ALLOCATIONS.match(source.text, cursor, end)
    cursor = _DETAILS_TITLE.require(source, rest.end() if rest else cursor, end).end()
    while cursor < end:
        allocation, cursor = _parse_allocation(source, cursor, end)
        table = None
        if source.text.startswith("\n", cursor, end):
            table, cursor = _parse_table(source, cursor + 1, end, prefix="\t")
            cursor = _BLANK.require(source, cursor, end).end()
        details.append(AllocationDetail(allocation=allocation, table=table))
    listed = len(rows) + (int(rest[1]) if rest else 0)
    if len(details) < listed:
        raise unexpected(source, cursor, f"{listed} allocations with their values")
    return AllocationReport(
        total_bytes=parse_total(source, header, 1),
        rows=tuple(rows),
        rest=int(rest[1]) if rest else None,
        rest_percent=int(rest[2]) if rest else 5,
        details=tuple(details),
    )


def _parse_allocation(source: Source, start: int, end: int) -> tuple[ReportedAllocation, int]:
    index, cursor = parse_number(source, start, end)
    size = ROUNDED_SIZE.require(source, cursor, end)
    attributes, cursor = parse_attributes(source, size.end(), end)
    return ReportedAllocation(index=index, size=size[1], **asdict(attributes)), cursor


def _parse_table(source: Source, start: int, end: int, prefix: str) -> tuple[UsageTable, int]:
    title = _TABLE_TITLE.format(prefix)
    if not source.text.startswith(title, start, end):
        raise unexpected(source, start, "the head of a table of values")
    cursor, rows = start + len(title), []
    while (match := _TABLE_ROW.match(source.text, cursor, end)) is not None:
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
        cursor = match.end()
    rest = _REST_VALUES.match(source.text, cursor, end)
    if rest is None and not source.text.startswith("\n", cursor, end):
        raise _TABLE_ROW.explain(source, cursor, end)
    return UsageTable(
        rows=tuple(rows),
        rest=int(rest[1]) if rest else None,
        rest_percent=int(rest[2]) if rest else 5,
    ), rest.end() if rest else cursor


def _percent(text: str) -> int | str:
    return text if text.endswith("nan") else int(text)


def _parse_shapes(text: str) -> tuple[ShapeCount, ...]:
    """`2×f32[8], (s32[], f32[2])`, split at commas outside of shapes."""
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
    if isinstance(report, SpaceReport):
        return "".join(map(_format_space, report.spaces))
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


def _format_space(space: MemorySpace) -> str:
    total = f"{space.total_bytes} ({human_bytes(space.total_bytes)})"
    tables = "".join([_format_table(table, "  ") + "\n" for table in space.tables])
    return f"{BY_SPACE}{space.name} (color={space.color})\nTotal bytes: {total}\n{tables}\n"


def _format_allocation(allocation: ReportedAllocation) -> str:
    return format_header(allocation.index, allocation.size, format_attributes(allocation))


def _format_table(table: UsageTable, prefix: str) -> str:
    parts = [_TABLE_TITLE.format(prefix)]
    for row in table.rows:
        shapes = ", ".join(
            shape.shape if shape.count == 1 else f"{shape.count}×{shape.shape}"
            for shape in row.shapes
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
