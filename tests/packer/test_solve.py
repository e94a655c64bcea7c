"""What `hlomem.pack` promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlomem
from hlomem.api.pack import pack_as_xla
from hlomem.base.errors import CommandError
from hlomem.base.source import Source
from hlomem.packer.buffers import Buffer
from hlomem.packer.check import find_problems
from hlomem.packer.table import read_problem
from tests.packer.problems import GAP, problems, smallest_height

EASY = {"A": 3500, "F": 1000, "G": 1000, "J": 2500, "K": 2500}
"""MiniMalloc's problems that the first order solves, with steps that are enough."""


def test_nothing_is_packed_into_nothing() -> None:
    assert pack_as_xla([]) == {}
    assert hlomem.pack([]).height == 0


@given(problems(most=40, sizes=st.integers(0, 1 << 70)), st.integers(0, 300))
@settings(max_examples=60)
def test_every_packing_is_right_and_not_below_the_bound(buffers: list[Buffer], effort: int) -> None:
    packing = hlomem.pack(buffers, effort=effort)
    assert find_problems(buffers, packing.offset_of, packing.height) == []
    assert packing.height >= packing.lower_bound
    assert (packing.height == packing.lower_bound) == (packing.status != "unknown within effort")
    assert packing.steps <= effort


@given(problems())
@settings(max_examples=200)
def test_what_is_called_optimal_is(buffers: list[Buffer]) -> None:
    packing = hlomem.pack(buffers)
    assert packing.status in ("at the bound", "proven optimal")
    assert packing.height == packing.lower_bound == smallest_height(buffers)


@given(problems(), st.integers(-3, 3))
@settings(max_examples=200)
def test_whether_it_fits_is_decided_rightly(buffers: list[Buffer], spare: int) -> None:
    best = smallest_height(buffers)
    capacity = max(0, best + spare)
    packing = hlomem.pack(buffers, capacity=capacity)
    assert packing.status == ("fits" if best <= capacity else "proven not to fit")
    assert packing.lower_bound <= best


@given(problems(most=25), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_the_order_of_the_input_does_not_matter(buffers: list[Buffer], random: object) -> None:
    shuffled = buffers[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert hlomem.pack(buffers, effort=500) == hlomem.pack(shuffled, effort=500)


@given(problems(most=25))
@settings(max_examples=60)
def test_no_heap_is_larger_than_xlas(buffers: list[Buffer]) -> None:
    aligned = [Buffer(b.id, b.lower, b.upper, b.size, 4, b.more_lives) for b in buffers]
    theirs = pack_as_xla(aligned)
    height = max(theirs[b.id] + b.size for b in aligned)
    assert find_problems(aligned, theirs, height) == []
    assert hlomem.pack(aligned, effort=0).height <= height


def test_nothing_takes_no_bytes() -> None:
    packing = hlomem.pack([])
    assert (packing.height, packing.status, packing.offset_of) == (0, "at the bound", {})
    packing = hlomem.pack([Buffer("empty", 0, 1, 0)], capacity=0)
    assert (packing.height, packing.status, packing.offset_of) == (0, "fits", {"empty": 0})


def test_without_effort_a_gap_stays_open_and_with_it_is_proven() -> None:
    greedy = hlomem.pack(GAP, effort=0)
    assert (greedy.height, greedy.lower_bound, greedy.steps) == (19, 15, 0)
    assert greedy.status == "unknown within effort"
    assert hlomem.pack(GAP, effort=0, capacity=17).status == "unknown within effort"
    best = hlomem.pack(GAP)
    assert (best.height, best.lower_bound, best.status) == (17, 17, "proven optimal")
    assert best.height == smallest_height(GAP)
    assert best.method.startswith("search")


@pytest.mark.parametrize(
    ("buffer", "problem"),
    [
        (Buffer("x", 3, 3, 1), "buffer `x`: lives from 3 to before 3, which is never"),
        (Buffer("x", 0, 1, 1, 1, ((5, 4),)), "buffer `x`: lives from 5 to before 4"),
        (Buffer("x", 0, 1, -1), "buffer `x`: its size is -1, below 0"),
        (Buffer("x", 0, 1, 1, 0), "buffer `x`: its alignment is 0, below 1"),
        (Buffer("y", 0, 1, 1), "two buffers have the id `y`"),
    ],
)
def test_what_cannot_be_placed_is_refused(buffer: Buffer, problem: str) -> None:
    with pytest.raises(CommandError) as caught:
        hlomem.pack([Buffer("y", 0, 1, 1), buffer])
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("name", EASY)
def test_hard_problems_of_minimalloc_fit(shared: Path, name: str) -> None:
    path = shared / f"packing/{name}.1048576.csv"
    if not path.exists():
        pytest.skip("the corpus has no packing problems")
    buffers = read_problem(Source(path.name, path.read_text())).buffers
    packing = hlomem.pack(buffers, capacity=1048576, effort=EASY[name])
    assert packing.status == "fits"
    assert find_problems(buffers, packing.offset_of, 1048576) == []
