"""Nothing missing, nothing twice, and lines that say what lists say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hlomem.dump.records import (
    Allocation,
)
from tests import plain
from tests.check.faults import rebuilt
from tests.check.small import V, rules, small_dump


def test_values_and_ranges_belong_together() -> None:
    dump = small_dump([V("a", (0, 1)), V("b", (1, 2), 64)])
    assert dump.values is not None
    assert dump.live_ranges is not None
    a, b = dump.values.values
    used = dump.values
    cases = [
        (rebuilt(dump, values=replace(used, values=(a,))), "completeness/unknown-value"),
        (rebuilt(dump, values=replace(used, values=(a, b, b))), "completeness/listed-twice"),
        (
            rebuilt(dump, values=replace(used, values=(a, replace(b, name="x")))),
            "completeness/value-differs",
        ),
        (
            rebuilt(dump, values=replace(used, values=(a, b, replace(b, id=9)))),
            "completeness/no-place",
        ),
    ]
    live = dump.live_ranges
    extra = plain.LiveRange(instruction="x", index=(1,), start=0, end=1)
    cases += [
        (
            rebuilt(dump, live_ranges=replace(live, ranges=(*live.ranges, extra))),
            "completeness/no-place",
        ),
        (
            rebuilt(dump, live_ranges=replace(live, ranges=(*live.ranges, live.ranges[0]))),
            "completeness/listed-twice",
        ),
        (
            rebuilt(dump, live_ranges=replace(live, ranges=live.ranges[:1])),
            "completeness/no-live-range",
        ),
        (
            rebuilt(dump, live_ranges=replace(live, sequence=("a", "b", "b"), end=3)),
            "completeness/listed-twice",
        ),
        (rebuilt(dump, live_ranges=replace(live, end=5)), "totals/sequence-length"),
    ]
    for case, rule in cases:
        assert rule in rules(case), rule


def test_two_values_do_not_have_one_name() -> None:
    dump = small_dump([V("a", (0, 1)), V("a", (0, 1), 64)])
    assert "completeness/two-values-of-one-name" in rules(dump)


def test_a_text_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    cut = V("b", (1, 2), text="f32[16]{0} negate(%a")
    assert rules(small_dump([V("a", (0, 1), uses=(("b", 0, ()),)), cut])) == []


@pytest.mark.parametrize(
    ("value", "header", "rule"),
    [
        (V("a", (0, 1)), plain.Allocation(index=1, size=64), "completeness/allocation-number"),
    ],
)
def test_rules_about_one_value(value: V, header: Allocation | None, rule: str) -> None:
    assert rule in rules(small_dump([value], {0: header} if header else None))
