"""Bytes in use over time, against the obvious count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.report.timeline import (
    build_timeline,
    bytes_over_time,
    find_summits,
    outline,
    use_changes,
)

ALLOCATION = Allocation(index=0, size=100)
STEPS = 12


def _placed(number: int, offset: int, size: int, start: int, end: int) -> Placed:
    name = f"v{number}"
    value = AssignedValue(id=number, name=name, size=size, offset=offset, shape="f32[]")
    return Placed(
        value, ALLOCATION, LiveRange(instruction=name, index=(), start=start, end=end), None
    )


def test_the_example_of_the_module() -> None:
    a, b, c = _placed(0, 0, 100, 0, 3), _placed(1, 0, 100, 1, 5), _placed(2, 100, 50, 2, 5)
    assert bytes_over_time(use_changes([a, b, c]), 6) == [100, 100, 150, 150, 150, 150]


PLACES = st.tuples(
    st.integers(0, 20), st.integers(0, 10), st.integers(0, STEPS - 1), st.integers(0, STEPS - 1)
)


@given(st.lists(PLACES, max_size=12))
def test_every_step_counts_each_byte_once(places: list[tuple[int, int, int, int]]) -> None:
    values = [
        _placed(number, offset, size, min(one, two), max(one, two))
        for number, (offset, size, one, two) in enumerate(places)
    ]
    for step, size in enumerate(bytes_over_time(use_changes(values), STEPS)):
        alive = [each for each in values if each.life and each.life.is_live_at(step)]
        assert size == len({byte for each in alive for byte in range(each.start, each.end)})


def test_summits_are_apart_and_near_the_peak() -> None:
    #        0   1   2   3   4   5   6   7   8
    sizes = [10, 95, 60, 98, 97, 98, 20, 92, 10]
    assert find_summits(sizes) == [3, 1, 7]
    assert find_summits([10, 89, 60, 99, 10]) == [3]
    assert find_summits([5, 5, 5]) == [0]
    assert find_summits([0]) == [0]
    assert find_summits([100, 0, 95]) == [0, 2]


def test_a_small_dip_does_not_part_two_summits() -> None:
    assert find_summits([1000, 1100, 1092, 1100, 1000]) == [1]
    assert find_summits([1000, 1100, 1050, 1090, 1000]) == [1, 3]


def test_an_outline_has_the_highest_of_each_stretch() -> None:
    assert outline([1, 5, 2, 3, 9, 4], 3) == (5, 3, 9)
    assert outline([1, 5], 48) == (1, 5)
    assert outline(range(100), 7)[-1] == 99


def test_the_last_step_is_after_the_last_instruction() -> None:
    timeline = build_timeline(0, [1, 2, 3], ["a", "b"])
    assert (timeline.peak.step, timeline.peak.size, timeline.peak.instruction) == (2, 3, None)
