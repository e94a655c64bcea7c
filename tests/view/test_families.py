"""Which values must share one place."""

from __future__ import annotations

from hlomem.view.control_flow import find_structure
from hlomem.view.families import AliasClasses, find_alias_classes
from hlomem.view.joined import JoinedDump, join_dump
from tests.check.small import LOOP, V, branches, small_dump


def _families(joined: JoinedDump) -> tuple[AliasClasses, list[set[str]]]:
    classes = find_alias_classes(joined, find_structure(joined))
    members = classes.members(joined.placed).values()
    return classes, [{placed.value.name for placed in family} for family in members]


def test_what_a_loop_carries_is_one_value_in_many_versions() -> None:
    joined = join_dump(small_dump(LOOP))
    classes, families = _families(joined)
    assert families == [{"i", "c", "b", "r", "w"}]
    assert {classes.reason[placed] for placed in joined.placed if placed in classes.reason} == {
        "carried by w"
    }


def test_the_results_of_branches_are_the_result() -> None:
    _, families = _families(join_dump(branches()))
    assert families == [{"k", "r", "z"}]


def test_what_is_declared_or_updated_is_in_place() -> None:
    declared = "f32[16]{0} custom-call(%a), output_to_operand_aliasing={{}: (0, {})}"
    update = "f32[16]{0} dynamic-update-slice(%b, %u, %z)"
    values = [V("a", (0, 1)), V("b", (1, 2), text=declared), V("c", (2, 3), text=update)]
    joined = join_dump(small_dump(values))
    classes, families = _families(joined)
    assert families == [{"a", "b", "c"}]
    first, _, last = joined.placed
    assert classes.are_together(first, last)
    assert classes.head(first) is classes.head(last)
    assert classes.reason[last] == "updated by c"


def test_values_that_nothing_joins_are_in_no_family() -> None:
    joined = join_dump(small_dump([V("a", (0, 1)), V("b", (1, 2))]))
    classes, families = _families(joined)
    assert families == []
    assert not classes.are_together(*joined.placed)
