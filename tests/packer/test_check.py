"""The checker finds what is wrong, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hlomem.packer.buffers import Buffer
from hlomem.packer.check import find_problems
from hlomem.packer.solve import solve
from tests.packer.problems import problems

BUFFERS = [
    Buffer("a", 0, 3, 4),
    Buffer("b", 3, 9, 4),
    Buffer("c", 0, 9, 4, 4),
    Buffer("d", 20, 21, 2, 1, ((0, 1),)),
]
RIGHT: dict[int | str, int] = {"a": 0, "b": 0, "c": 4, "d": 8}


@pytest.mark.parametrize(
    ("change", "height", "problem"),
    [
        ({"a": 1}, 10, "a and c share bytes at time 0"),
        ({"b": 2}, 10, "b and c share bytes at time 3"),
        ({"d": 3}, 10, "a and d share bytes at time 0"),
        ({"c": 5}, 12, "c is at 5, not a multiple of 4"),
        ({"a": -4}, 10, "a is at -4, below 0"),
        ({}, 9, "d ends at 10, above 9"),
        ({"e": 0}, 10, "e has an offset, but is not a buffer"),
    ],
)
def test_sabotage_is_found(change: dict[int | str, int], height: int, problem: str) -> None:
    assert find_problems(BUFFERS, RIGHT, 10) == []
    assert problem in find_problems(BUFFERS, {**RIGHT, **change}, height)


def test_a_buffer_without_place_is_found() -> None:
    del (missing := dict(RIGHT))["b"]
    assert find_problems(BUFFERS, missing, 10) == ["b has no offset"]


@given(problems(most=12, sizes=st.integers(1, 9)), st.data())
def test_two_buffers_of_one_time_at_one_place_are_found(
    buffers: list[Buffer], data: st.DataObject
) -> None:
    pairs = [
        (one, other)
        for one in buffers
        for other in buffers
        if one.id != other.id and one.lower <= other.lower < one.upper
    ]
    assume(pairs)
    packing = solve(buffers, effort=0)
    one, other = data.draw(st.sampled_from(pairs))
    wrong = {**packing.offset_of, one.id: packing.offset_of[other.id]}
    assert any("share bytes" in problem for problem in find_problems(buffers, wrong, 10**9))
