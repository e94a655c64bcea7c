"""Lines that cancel each other are one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.report.data.causes.cause import Cause
from hlomem.report.data.causes.explain import do_cancel, merge_cancelling

SIZES = st.lists(st.integers(-(10**6), 10**6).filter(bool), max_size=12)


def _causes(sizes: list[int]) -> list[Cause]:
    return [
        Cause(kind="line", text=f"f.py:{n}", delta=size, direct=size, count=1)
        for n, size in enumerate(sizes)
    ]


@given(SIZES)
def test_merging_keeps_the_sum(sizes: list[int]) -> None:
    merged = list(merge_cancelling(_causes(sizes)))
    assert sum(cause.delta for cause in merged) == sum(sizes)


@given(SIZES)
def test_what_is_left_alone_cancels_nothing(sizes: list[int]) -> None:
    alone = [cause for cause in merge_cancelling(_causes(sizes)) if cause.count == 1]
    assert not any(do_cancel(one, other) for one in alone for other in alone)


def test_two_equal_amounts_are_nothing() -> None:
    assert list(merge_cancelling(_causes([500, -500]))) == []


def test_what_is_left_of_two_names_both() -> None:
    (cause,) = merge_cancelling(_causes([500, -490]))
    assert (cause.delta, cause.text) == (10, "f.py:0; against it f.py:1")
