"""Names of arguments taken apart as `hlo_stack_trace.cc: SplitParamsString` does."""

from __future__ import annotations

import pytest

import hlomem
from hlomem.base.errors import UnsupportedError
from hlomem.write.stack_trace import split_name
from tests.fuzz.hostile_programs import call_bomb


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("params['layer/fc'].attr", ["params", "layer", "fc", "attr"]),
        ("params['a']['b']", ["params", "a", "b"]),
        ("params.attr", ["params.attr"]),
        ("params[0]", ["params[0]"]),
        ("jit(f)/while", ["jit(f)/while"]),
        ("", [""]),
    ],
)
def test_only_quoted_keys_are_split(name: str, parts: list[str]) -> None:
    assert split_name(name) == parts


def test_more_ways_than_can_be_drawn_are_refused() -> None:
    plan = hlomem.plan(call_bomb(0), backend="cpu")
    with pytest.raises(UnsupportedError, match="make a tree of over 10000000 names") as caught:
        str(plan)
    assert caught.value.line > 3
