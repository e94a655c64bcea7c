"""`diff` names sharding as a cause, by axis and argument."""

from __future__ import annotations

import hlomem
from tests.places import GOLDENS

SHARDED = GOLDENS / "sharded"


def test_a_cause_names_the_arguments_and_the_axis() -> None:
    diff = hlomem.diff(SHARDED / "optimizer_momentum", SHARDED / "optimizer_momentum_fixed")
    [cause] = [cause for cause in diff.causes if cause.kind == "sharding"]
    assert cause.delta == diff.causes[0].delta < -(255 << 20)
    assert "momentum['up']" in cause.text
    assert "P(None, 'fsdp') became P(None, 'fsdp', 'tensor') (along tensor)" in cause.text


def test_equal_shardings_are_no_cause() -> None:
    diff = hlomem.diff(SHARDED / "clean_tensor", SHARDED / "clean_tensor")
    assert not [cause for cause in diff.causes if cause.kind == "sharding"]
