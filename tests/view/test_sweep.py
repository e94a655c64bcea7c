"""Pairs that share bytes while both are there, against every pair looked at."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.base.native import kernel
from hlomem.view.sweep import Residency, iter_sharing, iter_sharing_in_order
from tests import plain

SPAN = st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair)))
BYTES = SPAN.map(lambda pair: (pair[0], pair[1] + 1))
NUMBER = st.integers(-5, 20) | st.sampled_from(
    [1 << 60, (1 << 61) - 1, 1 << 61, -(1 << 61), 1 << 80]
)

find_natively = kernel("hlomem.view._sweep", "find_sharing")
needs_native = pytest.mark.skipif(find_natively is None, reason="_sweep.c was not built")


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


@needs_native
@given(st.lists(st.tuples(NUMBER, NUMBER, NUMBER, NUMBER), max_size=30), st.integers(0, 200))
def test_the_native_sweep_finds_the_same_pairs_in_the_same_order(
    rows: list[tuple[int, int, int, int]], limit: int
) -> None:
    stays = [
        plain.Residency(first, last, number, start, end, number)
        for number, (first, last, start, end) in enumerate(sorted(rows))
    ]
    expected = list(iter_sharing_in_order(stays))
    found = find_natively(stays, limit)
    if found is None:
        is_large = any(abs(number) >= 1 << 61 for row in rows for number in row)
        is_backwards = any(last < first or end < start for first, last, start, end in rows)
        assert len(expected) > limit or is_large or is_backwards
    else:
        assert found == expected


@needs_native
@pytest.mark.parametrize(
    "stays", [[()], [(0, 0, 0, 0)], [("0",) * 6], [0], (), [(1,) * 6, (0,) * 6]]
)
def test_the_native_sweep_refuses_what_is_no_list_of_stays(stays: Any) -> None:
    with pytest.raises((TypeError, ValueError, IndexError)):
        find_natively(stays, 10)
