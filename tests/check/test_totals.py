"""Sums are those of what they sum."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import hlomem
from hlomem.dump.records import (
    AllocationReport,
    PeakBuffer,
    SpaceReport,
    UsageTable,
)
from tests import plain
from tests.check.faults import rebuilt
from tests.check.small import V, rules, small_dump
from tests.conftest import GOLDENS


def test_sums_are_held_against_what_they_sum() -> None:
    dump = small_dump([V("a", (0, 1))])
    live = dump.live_ranges
    assert live is not None
    report = AllocationReport(total_bytes=1)
    assert rules(rebuilt(dump, report=report)) == ["totals/report"]
    wrong = plain.Peak(moment=0, buffers=(PeakBuffer(instruction="a", size=64, cumulative=65),))
    assert rules(rebuilt(dump, live_ranges=replace(live, peak=wrong))) == ["totals/peak"]
    other = plain.Peak(moment=0, buffers=(PeakBuffer(instruction="b", size=64),))
    assert rules(rebuilt(dump, live_ranges=replace(live, peak=other))) == ["totals/peak"]


def test_an_old_report_names_allocations_that_exist_with_their_sizes() -> None:
    path = next(iter(sorted((GOLDENS / "xla" / "jaxlib-0.7.2" / "cpu").iterdir())))
    dump = hlomem.load(path)
    report = dump.report
    assert isinstance(report, AllocationReport)
    row = report.rows[0]
    for allocation in (replace(row.allocation, size="1B "), replace(row.allocation, index=99)):
        wrong = replace(report, rows=(replace(row, allocation=allocation), *report.rows[1:]))
        assert rules(rebuilt(dump, report=wrong)) == ["totals/report"]


TABLE = UsageTable(
    rows=(
        plain.UsageRow(cumulative="3.0KiB", percent=75, size="3.0KiB", offset=0, value_count=1),
        plain.UsageRow(cumulative="4.0KiB", percent=100, size="1.0KiB", offset=64, value_count=1),
    )
)


@pytest.mark.parametrize(
    ("number", "changes", "is_right"),
    [
        (0, {}, True),
        (0, {"percent": 60}, False),
        (1, {"percent": "-nan"}, False),
        (1, {"cumulative": "5.0KiB"}, False),
        (1, {"cumulative": "much"}, True),
        (0, {"size": "1.0KiB"}, False),
    ],
)
def test_the_sums_of_a_table_are_right(
    number: int, changes: dict[str, object], is_right: bool
) -> None:
    rows = [replace(each, **changes) if n == number else each for n, each in enumerate(TABLE.rows)]
    dump = small_dump([V("a", (0, 1))])
    for rest in (None, 3):
        table = replace(TABLE, rows=tuple(rows), rest=rest)
        space = plain.MemorySpace(name="default", color=0, total_bytes=64, tables=(table,))
        found = rules(rebuilt(dump, report=SpaceReport(spaces=(space,))))
        is_seen = rest is None or "percent" not in changes
        assert found == ([] if is_right or not is_seen else ["totals/report"])
