"""The curve of bytes in use, and its summits."""

from __future__ import annotations

from hlomem.report.data.occupancy import Usage
from hlomem.report.data.timeline import (
    build_timeline,
    bytes_over_time,
    find_summits,
    outline,
)


def test_uses_add_up_until_they_stop() -> None:
    uses = [
        Usage("temporaries", 0, 2, 100),
        Usage("outputs", 1, 3, 8),
        Usage("outputs", 3, 4, 8),
    ]
    assert bytes_over_time(uses, 4) == [100, 108, 8, 8]
    assert bytes_over_time([], 2) == [0, 0]


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
