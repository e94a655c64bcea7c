"""Paths of calls that are too many to draw."""

from __future__ import annotations

import pytest

import hlomem
from hlomem.base.errors import UnsupportedError
from tests.fuzz.hostile_programs import call_bomb


def test_more_ways_than_can_be_drawn_are_refused() -> None:
    plan = hlomem.plan(call_bomb(0), backend="cpu")
    with pytest.raises(UnsupportedError, match="make a tree of over 10000000 names") as caught:
        str(plan)
    assert caught.value.line > 3
