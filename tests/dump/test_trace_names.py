"""Names of arguments taken apart as `hlo_stack_trace.cc: SplitParamsString` does."""

from __future__ import annotations

import pytest

from hlomem.dump.live_range import split_name


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
