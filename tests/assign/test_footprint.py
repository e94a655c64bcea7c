"""The one rule which allocations count."""

from __future__ import annotations

import pytest

from hlomem.assign.footprint import footprint, main_space, reserved
from tests.plain import Allocation

HOST = 5
MIXED = [
    Allocation(index=0, size=100),
    Allocation(index=1, size=7, is_thread_local=True),
    Allocation(index=2, size=20, color=HOST),
    Allocation(index=3, size=0, color=1),
    Allocation(index=4, size=3),
]


@pytest.mark.parametrize(("space", "size"), [(0, 103), (HOST, 20), (1, 0), (9, 0)])
def test_each_space_is_summed_alone_and_stacks_of_threads_nowhere(space: int, size: int) -> None:
    assert footprint(MIXED, space) == size


def test_the_main_memory_is_summed_by_default() -> None:
    assert footprint(MIXED) == footprint(MIXED, 0)


def test_the_allocations_that_count_are_told_in_their_order() -> None:
    assert [each.index for each in reserved(MIXED, 0)] == [0, 4]


@pytest.mark.parametrize(
    ("kept", "space"), [([0, 1, 2, 3, 4], 0), ([1, 2, 3], HOST), ([1, 3], 0), ([], 0)]
)
def test_a_program_is_measured_in_the_first_space_it_needs(kept: list[int], space: int) -> None:
    assert main_space([MIXED[index] for index in kept]) == space
