"""Values of one family lie at one place."""

from __future__ import annotations

from msgspec.structs import replace

from hlomem.check.verify import verify
from hlomem.machines.cpu import CPU
from tests.check.faults import rebuilt
from tests.check.small import LOOP, V, branches, rules, small_dump


def test_what_a_loop_carries_lies_at_one_place() -> None:
    assert rules(small_dump(LOOP)) == []
    for number, value in enumerate(LOOP):
        if value.name != "t":
            torn = V(**{**vars(value), "allocation": 2})
            dump = small_dump([*LOOP[:number], torn, *LOOP[number + 1 :]])
            findings = verify(dump, machine=CPU).findings
            assert "alias/torn" in {finding.rule for finding in findings}, value.name
            assert "carried by w" in str([finding.evidence for finding in findings])


def test_the_results_of_branches_are_the_result() -> None:
    assert "alias/torn" in rules(branches(k=2))


def test_a_torn_family_may_have_members_without_a_range() -> None:
    torn = V(**{**vars(LOOP[-1]), "allocation": 2})
    dump = small_dump([*LOOP[:-1], torn])
    live = dump.live_ranges
    assert live is not None
    kept = tuple(each for each in live.ranges if each.instruction != "w")
    found = rules(rebuilt(dump, live_ranges=replace(live, ranges=kept)))
    assert {"alias/torn", "completeness/no-live-range"} <= set(found)
