"""A value is alive when it is needed, and not overwritten before."""

from __future__ import annotations

import pytest

from hlomem.dump.records import (
    Allocation,
)
from tests.check.small import V, rules, small_dump


def test_a_value_is_alive_while_it_is_read() -> None:
    reader = V("c", (2, 3), text="f32[16]{0} negate(%a)", allocation=1)
    found = rules(small_dump([V("a", (0, 1)), V("b", (1, 2), allocation=2), reader]))
    assert found == ["live/ends-early"]


def test_a_value_is_defined_before_it_is_read() -> None:
    values = [V("a", (1, 2), allocation=1), V("b", (0, 1), text="f32[16]{0} negate(%a)")]
    assert rules(small_dump(values, sequence=["b", "a"])) == ["order/used-before-defined"]


def test_a_live_value_is_in_the_sequence() -> None:
    found = rules(small_dump([V("a", (0, 1)), V("b", (0, 1), 64)], sequence=["a"]))
    assert found == ["live/not-in-sequence", "ownership/thread-local"]


def test_a_declared_output_may_be_handed_on_and_read_later() -> None:
    declared = (
        "f32[16]{0} fusion(%a), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%f"
    )
    values = [
        V("a", (0, 1), text="f32[16]{0} negate()"),
        V("b", (1, 3), text=declared),
        V("c", (2, 3), text="f32[16]{0} negate(%a)", allocation=1),
    ]
    assert rules(small_dump(values)) == []


@pytest.mark.parametrize(
    ("value", "header", "rule"),
    [
        (V("a", (0, 7)), None, "live/impossible-range"),
        (V("a", (1, 1)), None, "live/starts-late"),
    ],
)
def test_rules_about_one_value(value: V, header: Allocation | None, rule: str) -> None:
    assert rule in rules(small_dump([value], {0: header} if header else None))
