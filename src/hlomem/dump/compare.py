"""Two dumps → where their texts differ, stage by stage.

In: a dump, and another of the same program. Out: for each stage of which both tell, the first line
that is not the same. An order that only reflects a hash map, as that of rows of equal size in
a usage report did until XLA sorted them, is not a difference.
"""

from __future__ import annotations

from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.dump.parts import Contents, format_part
from hlomem.dump.records import AllocationReport, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.dump.dump import Dump
    from hlomem.dump.file_names import Kind
    from hlomem.dump.records import UsageReport, UsageTable


class Difference(Record, frozen=True, kw_only=True):
    """The first line of a stage that differs; None where one text has ended."""

    stage: str
    line: int
    """Its number in the stage's own text, from 1."""
    ours: str | None
    theirs: str | None


def find_differences(dump: Dump, other: Dump) -> list[Difference]:
    """The stages in which `other` says something else, with the first line of each."""
    differences = []
    for stage, kind, contents, other_contents in _stages(dump, other):
        text = format_part(kind, contents, dump.era)
        other_text = format_part(kind, other_contents, dump.era)
        if text != other_text:
            line, ours, theirs = first_difference(text, other_text)
            differences.append(Difference(stage=stage, line=line, ours=ours, theirs=theirs))
    return differences


def _stages(dump: Dump, other: Dump) -> Iterator[tuple[str, Kind, Contents, Contents]]:
    """The stages both dumps show, in the order of the pipeline."""
    if dump.values and other.values:
        yield "values", "values", Contents(values=dump.values), Contents(values=other.values)
    if dump.live_ranges and other.live_ranges:
        ours, theirs = dump.live_ranges, other.live_ranges
        yield "live ranges", "live-range", Contents(live_ranges=ours), Contents(live_ranges=theirs)
    if dump.assignment and other.assignment:
        first, second = dump.assignment, other.assignment
        yield "assignment", "assignment", Contents(assignment=first), Contents(assignment=second)
    if dump.report and other.report:
        reports = [
            Contents(report=without_hash_order(report)) for report in (dump.report, other.report)
        ]
        yield "report", "report", reports[0], reports[1]


def first_difference(text: str, other: str) -> tuple[int, str | None, str | None]:
    """The number of the first line in which two texts differ, from 1, and the line in each."""
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
            # Which of the smallest are shown is a matter of their order, too.
            members = [replace(row, offset=0, value_count=0, shapes=()) for row in members]
        for place, row in zip(members, sorted(members, key=lambda row: row.offset), strict=True):
            shapes = tuple(
                sorted(row.shapes, key=lambda row_shape: (row_shape.count, row_shape.shape))
            )
            rows.append(
                replace(row, cumulative=place.cumulative, percent=place.percent, shapes=shapes)
            )
    return replace(table, rows=tuple(rows))
