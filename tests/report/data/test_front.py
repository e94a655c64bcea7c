"""Points of memory against operations: who is on the front, and who fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.report.data.front import FrontPoint, PointKind, sort_front

REST = 100


def point(
    flops: int, temporaries: int, name: str = "", kind: PointKind = "recomputed"
) -> FrontPoint:
    """A point of a program of 1,000 operations and 100 bytes beside its temporaries."""
    return FrontPoint(
        name=name or f"{flops} {temporaries}",
        kind=kind,
        temporaries=temporaries,
        total=temporaries + REST,
        flops=flops,
        program_flops=1000,
        time=2 * flops,
        program_time=1000,
    )


POINTS = st.lists(st.builds(point, st.integers(-9, 9), st.integers(0, 9)), min_size=1, max_size=12)


@given(POINTS)
def test_on_the_front_is_what_no_other_beats(points: list[FrontPoint]) -> None:
    marked = sort_front(points)
    assert len(marked) == len(points)
    best = {(its.flops, its.temporaries) for its in marked if its.on_front}
    for its in points:
        is_beaten = any(
            other.flops <= its.flops
            and other.temporaries <= its.temporaries
            and (other.flops, other.temporaries) != (its.flops, its.temporaries)
            for other in points
        )
        assert ((its.flops, its.temporaries) in best) is not is_beaten


@given(POINTS, st.integers(0, 10))
def test_chosen_is_the_cheapest_that_fits(points: list[FrontPoint], room: int) -> None:
    chosen = [its for its in sort_front(points, REST + room) if its.is_chosen]
    fitting = [its for its in points if its.temporaries <= room]
    assert len(chosen) == bool(fitting)
    for its in chosen:
        assert its.on_front
        assert its.flops == min(other.flops for other in fitting)
