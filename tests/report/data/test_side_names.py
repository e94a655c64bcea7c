"""Two compiles are called by what differs between their paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.report.data.names import distinct_names


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        ("runs/gpt/train_step", "runs/gpt_donate/train_step", ("gpt", "gpt_donate")),
        ("before/", "after", ("before", "after")),
        ("a/x/1", "a/y/2", ("x/1", "y/2")),
        ("a/dump.txt", "a/b/dump.txt", ("dump.txt", "b/dump.txt")),
        ("a", "a/b", ("a", "a/b")),
        (r"runs\gpt\dump", r"runs\remat\dump", ("gpt", "remat")),
        ("same/path", "same/path", ("same/path", "same/path")),
    ],
)
def test_what_both_have_is_left_out(one: str, other: str, names: tuple[str, str]) -> None:
    assert distinct_names(one, other) == names


PATHS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join)


@given(PATHS, PATHS)
def test_names_are_parts_of_the_paths_and_differ_where_they_do(one: str, other: str) -> None:
    names = distinct_names(one, other)
    assert all(name and name in path for name, path in zip(names, (one, other), strict=True))
    assert (names[0] == names[1]) == (one == other)
