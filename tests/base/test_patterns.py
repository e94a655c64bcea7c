"""Patterns that are compiled late, and that every Python matches alike."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.base import patterns
from hlomem.base.patterns import lazy_pattern, repeated
from tests.places import PACKAGE


def test_a_lazy_pattern_matches_as_the_compiled_one() -> None:
    late = lazy_pattern("a(B+)", re.IGNORECASE)
    assert late.findall("xabBab") == re.findall("a(B+)", "xabBab", re.IGNORECASE)


@pytest.mark.parametrize("is_possessive_right", sorted({False, patterns._IS_POSSESSIVE_RIGHT}))
@given(st.text("ab,1\\", max_size=12))
def test_what_is_repeated_ends_behind_the_last_that_matched(
    is_possessive_right: bool, text: str
) -> None:
    with patch.object(patterns, "_IS_POSSESSIVE_RIGHT", is_possessive_right):
        match = re.match(repeated(r"a[b]{1,2}|,[0-9]{1,3}|\\[ab]"), text)
    assert match is not None
    end = 0
    while one := re.compile(r"a[b]{1,2}|,[0-9]{1,3}|\\[ab]").match(text, end):
        end = one.end()
    assert match.end() == end


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "hlo").rglob("*.py")), ids=lambda path: path.stem
)
def test_no_pattern_of_hlo_repeats_a_group_possessively(path: Path) -> None:
    code = path.read_text(encoding="utf-8")
    assert not re.findall(r"^[^#]*\)[*+]\+", code, re.MULTILINE)
