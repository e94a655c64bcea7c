"""The memory-usage report in both its shapes."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.base.errors import HlomemError, ParseError
from hlomem.base.source import Source
from hlomem.dump.records import (
    AllocationDetail,
    AllocationReport,
    AllocationRow,
    ShapeCount,
    SpaceReport,
    UnknownAttribute,
    UsageReport,
    UsageTable,
)
from hlomem.dump.usage_report import format as format_report
from hlomem.dump.usage_report import parse
from tests import plain

from .editing import (
    Path,
    changed_lines,
    field_at,
    fields_in,
    line_starts,
    parse_error,
    result_of,
    with_field,
)

BY_ALLOCATION = """\
Total bytes used: 2308 (2.3KiB)

Allocations sorted by size:

cumulative_size; total_size - cumulative_size; allocation
------------------------------------------------------------------------------
    2.0KiB( 89%);       260B; allocation 1: size 2.0KiB, color 1, preallocated-temp:
    2.2KiB(100%);         4B; allocation 0: size 256B, page 1, parameter 0, shape |f32[64]| at \
ShapeIndex {}:
The rest 1 allocations are less than 5% of the total size and not shown.


Allocations sorted by size with their values:
allocation 1: size 2.0KiB, color 1, preallocated-temp:

\tcumulative_size;       size;       offset; used_by_n_values; shapes_list
\t------------------------------------------------------------
\t   1.0KiB( 50%);     1.0KiB;         1024;                3; 2×f32[256], (s32[], f32[2]{T(2, 1)})
\t   2.0KiB(100%);     1.0KiB;            0;                1; f32[256]
\tThe rest 7 values are less than 5% of the total size and not shown.

allocation 0: size 256B, page 1, parameter 0, shape |f32[64]| at ShapeIndex {}:
allocation 2: size 4B, output shape is |s32[]|, constant, thread-local, maybe-live-out, odd:
"""
BY_SPACE = """\
Memory Space: default (color=0)
Total bytes: 1024 (1.0KiB)
  cumulative_size;       size;       offset; used_by_n_values; shapes_list
  ------------------------------------------------------------
     1.0KiB(100%);     1.0KiB;            0;                2; 2×f32[256]

  cumulative_size;       size;       offset; used_by_n_values; shapes_list
  ------------------------------------------------------------
         0B(-nan%);         0B;            0;                1; f32[0]
  The rest 3 values are less than 5% of the total size and not shown.


Memory Space: color_6 (color=6)
Total bytes: 0 (0B)

"""


def parse_text(text: str) -> UsageReport:
    return parse(Source("d.txt", text))


def test_every_line_by_allocation_becomes_a_field() -> None:
    temp = plain.ReportedAllocation(index=1, size="2.0KiB", color=1, is_preallocated_temp=True)
    parameter = plain.ReportedAllocation(
        index=0, size="256B", page=1, parameter=plain.Parameter(number=0, shape="f32[64]", index=())
    )
    constant = plain.ReportedAllocation(
        index=2,
        size="4B",
        output_shape="s32[]",
        is_constant=True,
        is_thread_local=True,
        maybe_live_out=True,
        unknown=(UnknownAttribute(text="odd", position=4),),
    )
    assert parse_text(BY_ALLOCATION) == AllocationReport(
        total_bytes=2308,
        rows=(
            AllocationRow(cumulative="2.0KiB", percent=89, remaining="260B", allocation=temp),
            AllocationRow(cumulative="2.2KiB", percent=100, remaining="4B", allocation=parameter),
        ),
        rest=1,
        details=(
            AllocationDetail(
                allocation=temp,
                table=UsageTable(
                    rows=(
                        plain.UsageRow(
                            cumulative="1.0KiB",
                            percent=50,
                            size="1.0KiB",
                            offset=1024,
                            value_count=3,
                            shapes=(
                                ShapeCount(shape="f32[256]", count=2),
                                ShapeCount(shape="(s32[], f32[2]{T(2, 1)})"),
                            ),
                        ),
                        plain.UsageRow(
                            cumulative="2.0KiB",
                            percent=100,
                            size="1.0KiB",
                            offset=0,
                            value_count=1,
                            shapes=(ShapeCount(shape="f32[256]"),),
                        ),
                    ),
                    rest=7,
                ),
            ),
            AllocationDetail(allocation=parameter),
            AllocationDetail(allocation=constant),
        ),
    )


def test_every_line_by_space_becomes_a_field() -> None:
    row = plain.UsageRow(
        cumulative="1.0KiB",
        percent=100,
        size="1.0KiB",
        offset=0,
        value_count=2,
        shapes=(ShapeCount(shape="f32[256]", count=2),),
    )
    empty = plain.UsageRow(
        cumulative="0B",
        percent="-nan",
        size="0B",
        offset=0,
        value_count=1,
        shapes=(ShapeCount(shape="f32[0]"),),
    )
    assert parse_text(BY_SPACE) == SpaceReport(
        spaces=(
            plain.MemorySpace(
                name="default",
                color=0,
                total_bytes=1024,
                tables=(UsageTable(rows=(row,)), UsageTable(rows=(empty,), rest=3)),
            ),
            plain.MemorySpace(name="color_6", color=6, total_bytes=0),
        )
    )


@pytest.mark.parametrize("text", [BY_ALLOCATION, BY_SPACE])
def test_the_samples_are_printed_back(text: str) -> None:
    assert format_report(parse_text(text)) == text


ROW = "    2.0KiB( 89%);       260B; allocation 1: size 2.0KiB, color 1, preallocated-temp:"
PARAMETER = "allocation 0: size 256B, page 1, parameter 0, shape |f32[64]| at ShapeIndex {}:"
VALUES = "\t   2.0KiB(100%);     1.0KiB;            0;                1; f32[256]"
FIRST_ROW = BY_ALLOCATION.split("\n")[16]
REST = "The rest 1 allocations are less than 5% of the total size and not shown."
REST_VALUES = "\tThe rest 7 values are less than 5% of the total size and not shown."
CONSTANT = BY_ALLOCATION.split("\n")[-2]
R, D, S = "rows", "details", "spaces"
T0 = (D, 0, "table")
CHANGES: list[tuple[str, Path, Any, str, str]] = [
    (
        BY_ALLOCATION,
        ("total_bytes",),
        4096,
        "Total bytes used: 2308 (2.3KiB)",
        "Total bytes used: 4096 (4.0KiB)",
    ),
    (BY_ALLOCATION, (R, 0, "cumulative"), "1B", ROW, ROW.replace("    2.0KiB(", "        1B(")),
    (BY_ALLOCATION, (R, 0, "percent"), "-nan", ROW, ROW.replace(" 89%", "-nan%")),
    (BY_ALLOCATION, (R, 0, "remaining"), "17.25GiB", ROW, ROW.replace("    260B", "17.25GiB")),
    (BY_ALLOCATION, (R, 0, "allocation", "index"), 9, ROW, ROW.replace("on 1:", "on 9:")),
    (BY_ALLOCATION, (R, 0, "allocation", "size"), "3B", ROW, ROW.replace("size 2.0KiB", "size 3B")),
    (BY_ALLOCATION, (R, 0, "allocation", "color"), 0, ROW, ROW.replace(" color 1,", "")),
    (BY_ALLOCATION, ("rest",), 3, REST, REST.replace("1", "3")),
    (BY_ALLOCATION, ("rest_percent",), 7, REST, REST.replace("5%", "7%")),
    (
        BY_ALLOCATION,
        (*T0, R, 1, "cumulative"),
        "3B",
        VALUES,
        VALUES.replace("2.0Ki", "    3"),
    ),
    (BY_ALLOCATION, (*T0, R, 1, "percent"), 7, VALUES, VALUES.replace("100%", "  7%")),
    (BY_ALLOCATION, (*T0, R, 1, "size"), "3B", VALUES, VALUES.replace("1.0KiB", "    3B")),
    (BY_ALLOCATION, (*T0, R, 1, "offset"), -64, VALUES, VALUES.replace("  0;", "-64;")),
    (BY_ALLOCATION, (*T0, R, 1, "value_count"), 12, VALUES, VALUES.replace(" 1;", "12;")),
    (
        BY_ALLOCATION,
        (*T0, R, 1, "shapes"),
        (ShapeCount(shape="s8[]", count=4), ShapeCount(shape="u8[]")),
        VALUES,
        VALUES.replace("f32[256]", "4×s8[], u8[]"),
    ),
    (
        BY_ALLOCATION,
        (*T0, R, 0, "shapes", 0, "shape"),
        "pred[]",
        FIRST_ROW,
        FIRST_ROW.replace("f32[256]", "pred[]"),
    ),
    (
        BY_ALLOCATION,
        (*T0, R, 0, "shapes", 0, "count"),
        1,
        FIRST_ROW,
        FIRST_ROW.replace("2×", ""),
    ),
    (BY_ALLOCATION, (*T0, "rest"), 8, REST_VALUES, REST_VALUES.replace("7", "8")),
    (BY_ALLOCATION, (*T0, "rest_percent"), 1, REST_VALUES, REST_VALUES.replace("5%", "1%")),
    (
        BY_ALLOCATION,
        (D, 1, "allocation", "page"),
        None,
        PARAMETER,
        PARAMETER.replace(" page 1,", ""),
    ),
    (
        BY_ALLOCATION,
        (D, 1, "allocation", "parameter"),
        None,
        PARAMETER,
        "allocation 0: size 256B, page 1:",
    ),
    (
        BY_ALLOCATION,
        (D, 1, "allocation", "parameter", "number"),
        4,
        PARAMETER,
        PARAMETER.replace("er 0", "er 4"),
    ),
    (
        BY_ALLOCATION,
        (D, 1, "allocation", "parameter", "shape"),
        "s8[]",
        PARAMETER,
        PARAMETER.replace("f32[64]", "s8[]"),
    ),
    (
        BY_ALLOCATION,
        (D, 1, "allocation", "parameter", "index"),
        (3, 0),
        PARAMETER,
        PARAMETER.replace("{}", "{3,0}"),
    ),
    (
        BY_ALLOCATION,
        (D, 2, "allocation", "output_shape"),
        "s8[]",
        CONSTANT,
        CONSTANT.replace("s32", "s8"),
    ),
    (
        BY_ALLOCATION,
        (D, 2, "allocation", "is_constant"),
        False,
        CONSTANT,
        "allocation 2: size 4B, output shape is |s32[]|, thread-local, maybe-live-out, odd:",
    ),
    (
        BY_ALLOCATION,
        (D, 2, "allocation", "is_thread_local"),
        False,
        CONSTANT,
        CONSTANT.replace(" thread-local,", ""),
    ),
    (
        BY_ALLOCATION,
        (D, 2, "allocation", "maybe_live_out"),
        False,
        CONSTANT,
        CONSTANT.replace(" maybe-live-out,", ""),
    ),
    (
        BY_ALLOCATION,
        (D, 2, "allocation", "is_preallocated_temp"),
        True,
        CONSTANT,
        CONSTANT.replace(" odd", " odd, preallocated-temp"),
    ),
    (BY_ALLOCATION, (D, 2, "allocation", "unknown"), (), CONSTANT, CONSTANT.replace(", odd", "")),
    (
        BY_ALLOCATION,
        (D, 2, "allocation", "unknown", 0, "text"),
        "even",
        CONSTANT,
        CONSTANT.replace("odd", "even"),
    ),
    (
        BY_ALLOCATION,
        (D, 2, "allocation", "unknown", 0, "position"),
        0,
        CONSTANT,
        CONSTANT.replace(", odd", "").replace(", output", ", odd, output"),
    ),
    (
        BY_SPACE,
        (S, 0, "name"),
        "vmem",
        "Memory Space: default (color=0)",
        "Memory Space: vmem (color=0)",
    ),
    (
        BY_SPACE,
        (S, 0, "color"),
        2,
        "Memory Space: default (color=0)",
        "Memory Space: default (color=2)",
    ),
    (
        BY_SPACE,
        (S, 0, "total_bytes"),
        1,
        "Total bytes: 1024 (1.0KiB)",
        "Total bytes: 1 (1B)",
    ),
]


@pytest.mark.parametrize(("sample", "path", "value", "old", "new"), CHANGES)
def test_changing_a_field_changes_its_line_and_no_other(
    sample: str, path: Path, value: Any, old: str, new: str
) -> None:
    assert old != new
    changed = format_report(with_field(parse_text(sample), path, value))
    assert changed_lines(sample, changed) == ([old], [new])


@pytest.mark.parametrize(
    ("sample", "path", "value", "removed"),
    [
        (BY_ALLOCATION, (R,), (), slice(6, 8)),
        (BY_ALLOCATION, ("rest",), None, slice(8, 9)),
        (BY_ALLOCATION, (D,), (), slice(12, 22)),
        (BY_ALLOCATION, (*T0, "rest"), None, slice(18, 19)),
        (BY_ALLOCATION, (*T0, R), (), slice(16, 18)),
        (BY_ALLOCATION, T0, None, slice(13, 20)),
        (BY_SPACE, (S,), (), slice(0, 15)),
        (BY_SPACE, (S, 0, "tables"), (), slice(2, 11)),
    ],
)
def test_emptying_a_list_removes_its_lines_and_no_other(
    sample: str, path: Path, value: Any, removed: slice
) -> None:
    changed = format_report(with_field(parse_text(sample), path, value))
    assert changed_lines(sample, changed) == (sample.split("\n")[removed], [])


def test_every_field_of_every_record_is_among_the_changes() -> None:
    covered = {field_at(parse_text(sample), path) for sample, path, *_ in CHANGES}
    lists = {
        ("AllocationReport", "rows"),
        ("AllocationReport", "details"),
        ("AllocationRow", "allocation"),
        ("AllocationDetail", "allocation"),
        ("AllocationDetail", "table"),
        ("UsageTable", "rows"),
        ("MemorySpace", "tables"),
        ("SpaceReport", "spaces"),
    }
    fields = fields_in(parse_text(BY_ALLOCATION)) | fields_in(parse_text(BY_SPACE))
    assert covered | lists == fields


SPACING = "the columns are not spaced as XLA spaces them"
BAD = [
    (BY_ALLOCATION, "2308 (2.3KiB)", "2308 (2.4KiB)", 1, 25, "`2.3KiB`, which 2308 bytes are"),
    (BY_ALLOCATION, "2308", "02308", 1, 19, "expected a number of bytes, found `02308`"),
    (BY_ALLOCATION, "size:\n\ncum", "size:\ncum", 2, 1, "expected `Allocations sorted by size:`"),
    (BY_ALLOCATION, "-----\n    2.0", "----\n    2.0", 5, 1, "expected the head of the list"),
    (BY_ALLOCATION, "    2.0KiB( 89%)", "   2.0KiB( 89%)", 7, 1, SPACING),
    (BY_ALLOCATION, "( 89%)", "(089%)", 7, 1, SPACING),
    (BY_ALLOCATION, "( 89%)", f"({'9' * 5000}%)", 7, 1, "expected `Allocations sorted by size"),
    (BY_ALLOCATION, "( 89%)", "(x%)", 7, 1, "expected `Allocations sorted by size with`"),
    (BY_ALLOCATION, "260B; allocation 1", "260B; alocation 1", 7, 31, "expected `allocation`"),
    (BY_ALLOCATION, "1: size 2.0KiB, c", "1: size big, c", 7, 50, "a size such as `1.5KiB`"),
    (BY_ALLOCATION, "The rest 1 a", "The rest 01 a", 9, 1, "expected `Allocations sorted by size"),
    (BY_ALLOCATION, "The rest 1 a", "The rest 2 a", 23, 1, "4 allocations with their values"),
    (
        BY_ALLOCATION,
        "\tcumulative",
        "  cumulative",
        15,
        1,
        "the head of a table of values",
    ),
    (BY_ALLOCATION, "         1024;", "         01024;", 17, 31, "expected a number, the offset"),
    (BY_ALLOCATION, "         1024;", "        1024;", 17, 1, SPACING),
    (BY_ALLOCATION, "\t   1.0KiB( 50%)", "     1.0KiB( 50%)", 17, 1, SPACING),
    (BY_ALLOCATION, "2×f32[256]", "02×f32[256]", 17, 1, SPACING),
    (BY_ALLOCATION, "1024;                3", "1024;                x", 17, 45, "count of values"),
    (BY_ALLOCATION, "        1; f32[256]", "        1; ", 18, 63, "expected a list of shapes"),
    (BY_ALLOCATION, "\tThe rest 7 values", "\tThe rest 7 value", 19, 1, "expected a rounded size"),
    (BY_ALLOCATION, "shown.\n\nallocation", "shown.\nallocation", 20, 1, "expected an empty line"),
    (BY_SPACE, "default (color=0)", "default (color=x)", 1, 15, "a name, `(color=` and a number"),
    (BY_SPACE, "Total bytes: 1024", "Total byte: 1024", 2, 1, "expected `Total bytes:`"),
    (BY_SPACE, "1024 (1.0KiB)", "1024 (1.0kiB)", 2, 20, "expected `1.0KiB`, which 1024 bytes are"),
    (BY_SPACE, "0 (0B)\n\n", "0 (0B)\nx\n", 15, 1, "expected an empty line, found `x`"),
    (BY_SPACE, "shown.\n\n\n", "shown.\n\n", 12, 1, "expected an empty line, found `Memory`"),
]


@pytest.mark.parametrize(("sample", "old", "new", "line", "column", "problem"), BAD)
def test_a_bad_line_is_refused_where_it_goes_wrong(
    sample: str, old: str, new: str, line: int, column: int, problem: str
) -> None:
    assert sample.count(old) >= 1
    error = parse_error(parse, sample.replace(old, new, 1))
    assert problem in error.problem
    assert (error.line, error.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "complete_at_lines"),
    [
        (BY_ALLOCATION, []),
        (BY_SPACE, [12]),  # between two memory spaces: nothing says that another follows
    ],
)
def test_a_cut_report_is_noticed(text: str, complete_at_lines: list[int]) -> None:
    complete = []
    for place in list(line_starts(text))[1:-1]:
        report, lines = result_of(parse, text[:place]), text.count("\n", 0, place)
        if isinstance(report, ParseError):
            assert report.line >= lines - 1
            assert "expected" in report.problem
        else:
            assert not isinstance(report, HlomemError)
            assert format_report(report) == text[:place]
            complete.append(lines)
    assert complete == complete_at_lines


def test_a_shape_that_looks_like_a_count_keeps_its_text() -> None:
    for shape in ("x×f32[]", "×f32[]", "1×f32[]", "99999999999999999999×f32[]"):
        text = BY_SPACE.replace("2×f32[256]", shape)
        report = parse_text(text)
        assert isinstance(report, SpaceReport)
        assert report.spaces[0].tables[0].rows[0].shapes == (ShapeCount(shape=shape),)
        assert format_report(report) == text
