"""Sets that grow together, against lists that are merged by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.base.disjoint_sets import DisjointSets

PAIRS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=20)


@given(PAIRS)
def test_members_are_together_when_a_chain_of_pairs_joins_them(
    pairs: list[tuple[int, int]],
) -> None:
    sets = DisjointSets[int]()
    slow = [{number} for number in range(13)]
    for one, other in pairs:
        sets.unite(one, other)
        joined = [group for group in slow if {one, other} & group]
        slow = [group for group in slow if not {one, other} & group] + [set().union(*joined)]
    found = sets.groups(range(13)).values()
    assert sorted(map(sorted, found)) == sorted(map(sorted, slow))
    for group in slow:
        assert all(sets.are_together(one, other) for one in group for other in group)
        assert {sets.find(member) for member in group} <= group


def test_who_stands_for_the_second_stands_for_both() -> None:
    sets = DisjointSets[str]()
    sets.unite("a", "b")
    sets.unite("c", "a")
    assert sets.find("c") == "b"
    assert sets.groups(["c", "x", "a"]) == {"b": ["c", "a"], "x": ["x"]}
