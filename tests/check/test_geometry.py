"""Sizes, offsets and colors fit shapes and allocations."""

from __future__ import annotations

import pytest

import hlomem
from hlomem.check.verify import verify
from hlomem.dump.records import (
    Allocation,
)
from hlomem.machines.registry import find_machine
from tests import plain
from tests.check.small import V, rules, small_dump
from tests.conftest import GOLDENS


def test_no_backend_does_with_less_than_a_cpu() -> None:
    small = small_dump([V(f"v{n}", (n, n + 1), 64 * n, size=60) for n in range(5)])
    assert verify(small).counts() == {"geometry/size-not-of-shape": 5}


def test_a_shape_of_unknown_size_is_not_measured() -> None:
    value = V("a", (0, 1), shape="f32[?]{0}", size=7)
    assert rules(small_dump([value])) == []


def test_an_old_cpu_aligns_to_16() -> None:
    path = next(iter(sorted((GOLDENS / "xla" / "jaxlib-0.4.13" / "cpu").iterdir())))
    assert verify(hlomem.load(path), machine=find_machine("cpu")).is_clean


@pytest.mark.parametrize(
    ("value", "header", "rule"),
    [
        (V("a", (0, 1)), plain.Allocation(index=0, size=-1), "geometry/negative-size"),
        (V("a", (0, 1), shape="f32[", size=1), None, "geometry/unreadable-shape"),
        (V("a", (0, 1), shape="f32[16]{0:S(1)}"), None, "geometry/color-not-of-layout"),
    ],
)
def test_rules_about_one_value(value: V, header: Allocation | None, rule: str) -> None:
    assert rule in rules(small_dump([value], {0: header} if header else None))
