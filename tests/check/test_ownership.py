"""Arguments, constants and results have allocations of their own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hlomem.dump.records import (
    Allocation,
)
from tests import plain
from tests.check.small import V, rules, small_dump

ARGUMENT = plain.Parameter(number=0, shape="f32[16]", index=())


@pytest.mark.parametrize(
    ("text", "shape", "offset"),
    [
        ("parameter(1)", "f32[16]", 0),
        ("parameter(0)", "f32[4]", 0),
        ("parameter(0)", "f32[16]", 64),
    ],
)
def test_a_parameter_fills_its_own_allocation(text: str, shape: str, offset: int) -> None:
    value = V("a", (0, 1), offset, text=f"f32[16]{{0}} {text}")
    parameter = plain.Parameter(number=0, shape=shape, index=())
    header = {0: plain.Allocation(index=0, size=64 + offset, parameter=parameter)}
    assert rules(small_dump([value], header)) == ["ownership/parameter"]


def test_a_parameter_has_one_allocation_and_so_has_the_output() -> None:
    text = "f32[16]{0} parameter(0)"
    values = [V("a", (0, 2), text=text), V("b", (1, 2), text=text, allocation=1)]
    header = plain.Allocation(
        index=0, size=64, parameter=ARGUMENT, maybe_live_out=True, output_shape="f32[16]"
    )
    both = small_dump(values, {0: header, 1: replace(header, index=1)})
    assert rules(both) == ["live/starts-late", "ownership/output", "ownership/parameter"]


def test_constants_share_nothing_even_one_after_another() -> None:
    text = "f32[16]{0} constant({...})"
    values = [V("a", (0, 1), text=text), V("b", (2, 3), text=text)]
    header = {0: plain.Allocation(index=0, size=64, is_constant=True)}
    assert rules(small_dump(values, header, ["a", "x", "b", "y"])) == ["ownership/constant"]


@pytest.mark.parametrize(
    ("value", "header", "rule"),
    [
        (
            V("a", (0, 1)),
            plain.Allocation(index=0, size=64, is_constant=True),
            "ownership/read-only",
        ),
        (
            V("a", (0, 1)),
            plain.Allocation(index=0, size=64, parameter=ARGUMENT),
            "ownership/read-only",
        ),
        (
            V("a", (0, 1)),
            plain.Allocation(index=0, size=64, is_thread_local=True),
            "ownership/thread-local",
        ),
        (
            V("a", (0, 1)),
            plain.Allocation(index=0, size=64, output_shape="f32[16]"),
            "ownership/output",
        ),
        (V("a", (0, 1), text="f32[16]{0} constant({...})"), None, "ownership/constant"),
        (V("a", (0, 1), text="f32[16]{0} parameter(0)"), None, "ownership/parameter"),
    ],
)
def test_rules_about_one_value(value: V, header: Allocation | None, rule: str) -> None:
    assert rule in rules(small_dump([value], {0: header} if header else None))
