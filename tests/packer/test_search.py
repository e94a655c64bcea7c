"""The exact search against trying everything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.packer.buffers import Buffer, in_order
from hlomem.packer.check import find_problems
from hlomem.packer.instance import Instance
from hlomem.packer.search import Outcome, Search
from tests.packer.problems import GAP, problems, smallest_height

POSITIVE = st.integers(1, 9)


def _run(
    buffers: list[Buffer], capacity: int, ranking: list[int], follows_conflicts: bool
) -> Outcome:
    """The outcome; offsets that it comes with are right."""
    instance = Instance(in_order(buffers))
    search = Search(instance, capacity, ranking, follows_conflicts)
    outcome = search.run(100_000)
    if outcome == "fits":
        offset_of = {
            buffer.id: offset * instance.unit
            for buffer, offset in zip(instance.buffers, search.offsets, strict=True)
        }
        assert find_problems(buffers, offset_of, capacity) == []
    return outcome


@given(problems(sizes=POSITIVE), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=300)
def test_the_best_height_fits_and_one_byte_less_does_not(
    buffers: list[Buffer], random: object, follows_conflicts: bool
) -> None:
    ranking = list(range(len(buffers)))
    random.shuffle(ranking)  # type: ignore[attr-defined]
    best = smallest_height(buffers)
    assert _run(buffers, best, ranking, follows_conflicts) == "fits"
    assert _run(buffers, best - 1, ranking, follows_conflicts) == "does not fit"


@pytest.mark.parametrize("follows_conflicts", [False, True])
def test_steps_that_are_used_up_prove_nothing(follows_conflicts: bool) -> None:
    instance = Instance(GAP)
    search = Search(instance, smallest_height(GAP), range(5), follows_conflicts)
    assert search.run(1) == "unknown"


def test_groups_that_share_no_time_are_independent() -> None:
    """Forty hopeless groups are as easy as one: the first that fails ends the search."""
    one = [Buffer(0, 0, 2, 2), Buffer(1, 1, 4, 2), Buffer(2, 3, 6, 2), Buffer(3, 5, 7, 2)]
    many = [
        Buffer(4 * group + b.id, b.lower + 10 * group, b.upper + 10 * group, b.size)
        for group in range(40)
        for b in one
        if isinstance(b.id, int)
    ]
    search = Search(Instance(in_order(many)), 4, list(range(160)), False)
    assert search.run(200) == "fits"


@given(problems(sizes=POSITIVE))
def test_sizes_beyond_64_bits_change_nothing(buffers: list[Buffer]) -> None:
    factor = 10**30
    large = [
        Buffer(b.id, b.lower, b.upper, b.size * factor, b.alignment * factor, b.more_lives)
        for b in buffers
    ]
    best = smallest_height(buffers)
    ranking = list(range(len(buffers)))
    assert _run(large, best * factor, ranking, True) == "fits"
    assert _run(large, best * factor - 1, ranking, True) == "does not fit"
