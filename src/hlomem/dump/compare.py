"""Two dumps of one program → the first line that differs in each stage, hash orders aside."""

from __future__ import annotations

from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.dump.parts import Contents, format_part
from hlomem.dump.records import AllocationReport, Record, UsageReport, UsageTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.dump.dump import Dump
    from hlomem.dump.file_names import Kind

_STAGES: Mapping[Kind, str] = {
    "values": "values",
    "live-range": "live ranges",
    "assignment": "assignment",
    "report": "report",
}


class Difference(Record, frozen=True, kw_only=True):
    """The first line of a stage that differs; None where one text has ended."""

    stage: str
    line: int
    """The line number in the stage's own text, from 1."""
    ours: str | None
    theirs: str | None


def find_differences(dump: Dump, other: Dump) -> list[Difference]:
    """The stages in both dumps that differ, with the first line of each."""
    differences = []
    for kind, stage in _STAGES.items():
        contents, other_contents = _contents(dump, kind), _contents(other, kind)
        if not any(contents) or not any(other_contents):
            continue
        text = format_part(kind, contents, dump.era)
        other_text = format_part(kind, other_contents, dump.era)
        if text != other_text:
            line, ours, theirs = first_difference(text, other_text)
            differences.append(Difference(stage=stage, line=line, ours=ours, theirs=theirs))
    return differences


def _contents(dump: Dump, kind: Kind) -> Contents:
    report = None if dump.report is None else without_hash_order(dump.report)
    return Contents(dump.assignment, dump.values, dump.live_ranges, report).of_file(kind)


def first_difference(text: str, other: str) -> tuple[int, str | None, str | None]:
    """The number of the first line that differs, from 1, and the line in each text."""
    lines = zip_longest(text.split("\n"), other.split("\n"))
    return next(
        (number, line, other_line)
        for number, (line, other_line) in enumerate(lines, 1)
        if line != other_line
    )


def without_hash_order(report: UsageReport) -> UsageReport:
    """A report with rows of equal size by offset, and shapes of equal count by name."""
    if not isinstance(report, AllocationReport):
        return report
    details = [
        replace(detail, table=_sort_table(detail.table)) if detail.table else detail
        for detail in report.details
    ]
    return replace(report, details=tuple(details))


def _sort_table(table: UsageTable) -> UsageTable:
    rows = []
    for size, group in groupby(table.rows, key=lambda row: row.size):
        members = list(group)
        if table.rest and size == table.rows[-1].size:
            # Which of the smallest are shown depends on the order, too.
            members = [replace(row, offset=0, value_count=0, shapes=()) for row in members]
        for old, row in zip(members, sorted(members, key=lambda row: row.offset), strict=True):
            shapes = tuple(sorted(row.shapes, key=lambda counted: (counted.count, counted.shape)))
            rows.append(replace(row, cumulative=old.cumulative, percent=old.percent, shapes=shapes))
    return replace(table, rows=tuple(rows))
