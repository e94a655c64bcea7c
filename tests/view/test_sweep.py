"""Pairs that share bytes while both are there, against every pair looked at."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.view.sweep import Residency, iter_sharing
from tests import plain

SPAN = st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair)))
BYTES = SPAN.map(lambda pair: (pair[0], pair[1] + 1))


def _meet(one: Residency[int], two: Residency[int]) -> bool:
    in_time = one.first <= two.last and two.first <= one.last
    return in_time and max(one.start, two.start) < min(one.end, two.end)


@given(st.lists(st.tuples(SPAN, BYTES), max_size=14))
def test_the_pairs_are_those_of_looking_at_all(
    spans: list[tuple[tuple[int, int], tuple[int, int]]],
) -> None:
    stays = [
        plain.Residency(first, last, number, start, end, number)
        for number, ((first, last), (start, end)) in enumerate(spans)
    ]
    found = [frozenset((one.who, two.who)) for one, two in iter_sharing(stays)]
    expected = {frozenset((a.who, b.who)) for a, b in combinations(stays, 2) if _meet(a, b)}
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_the_first_to_come_is_first() -> None:
    early, late = plain.Residency(0, 4, 7, 0, 100, "a"), plain.Residency(2, 7, 1, 50, 60, "b")
    assert list(iter_sharing([late, early])) == [(early, late)]
