"""When allocations are idle, against a table of every time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.analysis.live_range import LiveRange
from hlomem.assign.shared import IdleAllocations
from hlomem.base.quantities import Step

END = 40


@st.composite
def live_ranges(draw: st.DrawFn) -> LiveRange:
    start = draw(st.integers(0, END))
    return LiveRange(Step(start), Step(draw(st.integers(start, END))))


@given(
    st.lists(st.tuples(st.integers(0, 9), live_ranges()), max_size=30),
    st.lists(live_ranges(), min_size=1, max_size=3),
)
def test_idle_allocations_are_those_nothing_occupies(
    occupied: list[tuple[int, LiveRange]], wanted: list[LiveRange]
) -> None:
    idle = IdleAllocations(END)
    for number in range(10):
        idle.register(number)
    for number, live_range in occupied:
        idle.occupy(number, live_range)
    half_steps = [(2 * start, 2 * end) for start, end in wanted]
    busy = {
        number
        for number, (start, end) in occupied
        for first, last in wanted
        if start <= last and first <= end
    }
    assert list(idle.idle(half_steps)) == [n for n in range(9, -1, -1) if n not in busy]


def test_what_ends_at_a_time_leaves_room_after_it() -> None:
    idle = IdleAllocations(10)
    idle.register(0)
    idle.occupy(0, LiveRange(Step(2), Step(5)))
    assert list(idle.idle([(11, 20)])) == [0]
    assert list(idle.idle([(10, 20)])) == []


@given(
    st.lists(st.tuples(st.integers(0, 4), live_ranges()), max_size=12),
    st.integers(0, END),
    st.sampled_from([(1, 0), (0, -1), (1, -1)]),
)
def test_a_moment_is_shared_only_with_what_begins_or_ends_then(
    occupied: list[tuple[int, LiveRange]], step: int, ends: tuple[int, int]
) -> None:
    idle = IdleAllocations(END)
    for number in range(5):
        idle.register(number)
    for number, live_range in occupied:
        idle.occupy(number, live_range)
    alive = {n for n, (start, end) in occupied if start <= step <= end}
    changing = {n for n, live_range in occupied if step in live_range}
    found = set(idle.idle([(2 * step + ends[0], 2 * step + ends[1])]))
    assert found == set(range(5)) - (alive - changing)


@given(
    st.lists(st.lists(live_ranges(), max_size=4), max_size=6),
    st.lists(st.tuples(st.integers(0, 5), live_ranges()), max_size=6),
    live_ranges(),
)
def test_all_are_busy_where_none_is_idle_and_none_is_idle_where_all_are_busy(
    registered: list[list[LiveRange]], later: list[tuple[int, LiveRange]], wanted: LiveRange
) -> None:
    idle = IdleAllocations(END)
    for number, ranges in enumerate(registered):
        idle.register(number, ranges)
    first, last = 2 * wanted.start, 2 * wanted.end
    assert idle.are_busy(first, last) == (not list(idle.idle([(first, last)])))
    for number, live_range in later:
        if number < len(registered):
            idle.occupy(number, live_range)
    assert not (idle.are_busy(first, last) and list(idle.idle([(first, last)])))
