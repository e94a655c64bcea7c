"""`std::sort` as LLVM has it: sorted, and stable only while lists are short."""

from __future__ import annotations

import operator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.history.computations.by_content import introsort

keys = st.sampled_from([1, 2, 3, 20]).flatmap(
    lambda most: st.lists(st.integers(0, most), max_size=300)
)


@given(keys)
def test_sorts(numbers: list[int]) -> None:
    items = numbers[:]
    introsort(items, operator.lt)
    assert items == sorted(numbers)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [0, 1, 20, 10_000])
@pytest.mark.parametrize("length", [24, 128, 129, 1000])
def test_sorts_what_is_long(length: int, most: int, seed: int) -> None:
    chance = Random(seed)  # noqa: S311 - no secret
    numbers = [chance.randint(0, most) for _ in range(length)]
    for given_order in (numbers, sorted(numbers), sorted(numbers, reverse=True)):
        items = list(enumerate(given_order))
        introsort(items, lambda one, other: one[1] < other[1])
        assert [number for _, number in items] == sorted(numbers)
        assert sorted(position for position, _ in items) == list(range(length))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers()), min_size=6, max_size=23))
def test_short_lists_keep_equal_elements_in_order(items: list[tuple[int, int]]) -> None:
    expected = sorted(items, key=operator.itemgetter(0))
    introsort(items, lambda one, other: one[0] < other[0])
    assert items == expected


def test_long_lists_do_not() -> None:
    # What __introsort of libc++ does with 24 equal elements: the middle one becomes the pivot,
    # nothing is smaller, so that it stays in front, and the rest is left as it is.
    items = [(0, i) for i in range(24)]
    introsort(items, lambda one, other: one[0] < other[0])
    assert [number for _, number in items] == list(range(24))
    items = [(i % 2, i) for i in range(30)]
    introsort(items, lambda one, other: one[0] < other[0])
    assert [key for key, _ in items] == [0] * 15 + [1] * 15
    assert [number for _, number in items] != sorted(range(30), key=lambda i: i % 2)
