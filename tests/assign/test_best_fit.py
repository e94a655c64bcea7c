"""Best fit, natively and in lists: the same offsets for any buffers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.assign import best_fit
from hlomem.assign.best_fit import Life, place, place_in_lists, place_natively

needs_native = pytest.mark.skipif(not best_fit.IS_NATIVE, reason="_heap.c was not built")

Problem = tuple[list[int], list[list[Life]], int]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Sizes and lives, which may be many, meet themselves and span many blocks of slots."""
    slots = draw(st.sampled_from([1, 3, 40, 200, 3000]))
    life = st.tuples(st.integers(0, slots - 1), st.integers(0, slots - 1))
    lives = draw(st.lists(st.lists(life, min_size=1, max_size=3), max_size=40))
    size = st.sampled_from([1, 4, 63, 64, 65, 200, 4096]) | st.integers(1, 1 << 40)
    sizes = draw(st.lists(size, min_size=len(lives), max_size=len(lives)))
    return sizes, [[(min(pair), max(pair)) for pair in times] for times in lives], slots


ALIGNMENTS = st.sampled_from([1, 3, 64, 512])


@needs_native
@given(problems(), ALIGNMENTS, st.none() | st.integers(-1, 10_000))
def test_the_native_heap_has_the_offsets_of_the_lists(
    problem: Problem, alignment: int, below: int | None
) -> None:
    native = place_natively(*problem, alignment, below)
    assert native == place_in_lists(*problem, alignment, below)


@given(problems(), ALIGNMENTS, st.sampled_from([1 << 52, 1 << 53, 1 << 64, 1 << 200]))
def test_sizes_that_no_machine_has_are_counted_exactly(
    problem: Problem, alignment: int, unit: int
) -> None:
    sizes, lives, slots = problem
    scaled = place([size * unit for size in sizes], lives, slots, alignment * unit)
    plain = place_in_lists(sizes, lives, slots, alignment)
    assert plain is not None
    assert scaled == [offset * unit for offset in plain]


@given(problems(), ALIGNMENTS)
def test_a_heap_is_given_up_exactly_where_it_grows_too_large(
    problem: Problem, alignment: int
) -> None:
    offsets = place(*problem, alignment)
    assert offsets is not None
    height = max(
        (offset + size for offset, size in zip(offsets, problem[0], strict=True)), default=0
    )
    assert place(*problem, alignment, height + 1) == offsets
    assert not offsets or place(*problem, alignment, height) is None


@needs_native
@pytest.mark.parametrize(
    ("sizes", "lives", "slots"),
    [
        ([0], [[(0, 0)]], 1),
        ([-1], [[(0, 0)]], 1),
        ([1], [[(0, 1)]], 1),
        ([1], [[(-1, 0)]], 1),
        ([1], [[(1, 0)]], 2),
        ([1], [[]], 1),
        ([1 << 53], [[(0, 0)]], 1),
    ],
)
def test_the_native_heap_refuses_what_it_was_not_made_for(
    sizes: list[int], lives: list[list[Life]], slots: int
) -> None:
    with pytest.raises(ValueError, match="out of range"):
        place_natively(sizes, lives, slots, 1)
