"""What is taken during a stretch of time: the trees against a list of everything that was added."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.assign.interval_tree import IntervalTree

SLOTS = 400  # many blocks, several levels

times = st.tuples(st.integers(0, SLOTS - 1), st.integers(0, SLOTS - 1)).map(
    lambda pair: (min(pair), max(pair))
)
byte_ranges = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(
    lambda pair: (float(pair[0]), float(pair[0] + pair[1]))
)


def _bytes_of(ranges: list[tuple[float, float]]) -> set[int]:
    return {byte for begin, end in ranges for byte in range(int(begin), int(end))}


def _collected(tree: IntervalTree, first: int, last: int) -> set[int]:
    begins: list[float] = []
    ends: list[float] = []
    tree.collect(first, last, begins, ends)
    # Sorted apart, they are the ends of other ranges, of the same bytes together.
    return _bytes_of(list(zip(sorted(begins), sorted(ends), strict=True)))


@given(st.lists(st.tuples(times, byte_ranges), max_size=40), st.lists(times, max_size=10))
@settings(deadline=None)
def test_what_is_taken_is_what_overlaps_in_time(
    added: list[tuple[tuple[int, int], tuple[float, float]]], asked: list[tuple[int, int]]
) -> None:
    tree = IntervalTree(SLOTS)
    for (first, last), taken in added:
        tree.add(first, last, *taken)
    for first, last in asked:
        overlapping = [taken for (start, end), taken in added if start <= last and end >= first]
        assert _collected(tree, first, last) == _bytes_of(overlapping)


@given(st.lists(st.tuples(times, byte_ranges), min_size=1, max_size=30))
@settings(deadline=None)
def test_every_moment_can_be_asked_about(
    added: list[tuple[tuple[int, int], tuple[float, float]]],
) -> None:
    tree = IntervalTree(SLOTS)
    for (first, last), taken in added:
        tree.add(first, last, *taken)
    for moment in range(SLOTS):
        alive = [taken for (start, end), taken in added if start <= moment <= end]
        assert _collected(tree, moment, moment) == _bytes_of(alive)


def test_the_example_of_the_module() -> None:
    tree = IntervalTree(4)
    tree.add(0, 1, 0.0, 64.0)
    tree.add(2, 3, 0.0, 32.0)
    tree.add(1, 1, 64.0, 96.0)
    assert _collected(tree, 2, 3) == set(range(32))
    assert _collected(tree, 1, 2) == set(range(96))


def test_an_empty_tree_takes_nothing() -> None:
    assert _collected(IntervalTree(0), 0, 0) == set()
    assert _collected(IntervalTree(1000), 3, 998) == set()
