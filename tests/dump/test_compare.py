"""Where two dumps differ."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import hlomem
from hlomem.dump.compare import Difference, find_differences, without_hash_order
from hlomem.dump.records import (
    AllocationDetail,
    AllocationReport,
    ShapeCount,
    UsageRow,
    UsageTable,
)
from tests import plain
from tests.places import GOLDENS

SEED = GOLDENS / "seeds" / "002_c2e226da3172e77e.txt"


def test_a_dump_is_the_same_as_itself() -> None:
    dump = hlomem.load(SEED)
    assert find_differences(dump, hlomem.load(SEED)) == []


@pytest.mark.parametrize(
    ("old", "new", "stage", "line"),
    [
        ("  convert, operand 0\n", "  convert, operand 1\n", "values", 9),
        ("    convert{}:3-6\n", "    convert{}:3-7\n", "live ranges", 13),
        ("(size=4608,offset=13824)", "(size=4608,offset=0)", "assignment", 12),
    ],
)
def test_the_first_line_of_a_stage_is_shown(old: str, new: str, stage: str, line: int) -> None:
    text = SEED.read_text()
    assert text.count(old) == 1
    [difference] = find_differences(hlomem.load(SEED), hlomem.load(text.replace(old, new)))
    assert (difference.stage, difference.line) == (stage, line)
    assert difference.ours is not None
    assert difference.theirs == difference.ours.replace(old.rstrip("\n"), new.rstrip("\n"))


def test_a_text_that_ends_early_is_different() -> None:
    dump = hlomem.load(SEED)
    assert dump.assignment is not None
    short = replace(dump.assignment, allocations=dump.assignment.allocations[:-1])
    [part] = dump.parts
    other = replace(dump, parts=(part._replace(contents=part.contents._replace(assignment=short)),))
    [difference] = find_differences(dump, other)
    assert difference == Difference(
        stage="assignment",
        line=11,
        ours="allocation 4: size 23040, preallocated-temp:",
        theirs="",
    )


def _row(size: str, offset: int, *shapes: ShapeCount) -> UsageRow:
    return plain.UsageRow(
        cumulative=f"after {size}",
        percent=1,
        size=size,
        offset=offset,
        value_count=1,
        shapes=shapes,
    )


def _report(*rows: UsageRow, rest: int | None = None) -> AllocationReport:
    allocation = plain.ReportedAllocation(index=0, size="1B")
    detail = AllocationDetail(allocation=allocation, table=UsageTable(rows=rows, rest=rest))
    return AllocationReport(total_bytes=1, details=(detail,))


ONE, TWO = ShapeCount(shape="f32[1]"), ShapeCount(shape="f32[2]")
SORTED = _report(_row("8B", 0), _row("4B", 8, ONE, TWO), _row("4B", 16))


def test_rows_of_equal_size_and_shapes_of_equal_count_may_stand_in_any_order() -> None:
    other = _report(_row("8B", 0), _row("4B", 16), _row("4B", 8, TWO, ONE))
    assert other != SORTED
    assert without_hash_order(other) == without_hash_order(SORTED) == SORTED


def test_what_they_hold_must_be_the_same() -> None:
    for other in (
        _report(_row("8B", 0), _row("4B", 8, ONE, TWO), _row("4B", 24)),
        _report(_row("8B", 0), _row("4B", 8, ONE), _row("4B", 16)),
        _report(_row("4B", 8, ONE, TWO), _row("8B", 0), _row("4B", 16)),
    ):
        assert without_hash_order(other) != SORTED


def test_which_of_the_smallest_rows_are_left_out_is_a_matter_of_order() -> None:
    some = _report(_row("8B", 0), _row("4B", 8), rest=1)
    others = _report(_row("8B", 0), _row("4B", 16), rest=1)
    assert without_hash_order(some) == without_hash_order(others)
    larger = _report(_row("8B", 4), _row("4B", 8), rest=1)
    assert without_hash_order(some) != without_hash_order(larger)
