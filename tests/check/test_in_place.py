"""Which users may be written over what they read."""

from __future__ import annotations

import pytest

from tests.check.small import V, rules, small_dump


@pytest.mark.parametrize("opcode", ["dot", "transpose", "copy", "reduce"])
def test_what_reads_elsewhere_is_not_in_place(opcode: str) -> None:
    user = V("b", (1, 2), text=f"f32[16]{{0}} {opcode}(%a)")
    assert rules(small_dump([V("a", (0, 1)), user])) == ["interference/touch"]


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("f32[16]{0} negate(%a)", True),
        ("f32[16]{0} fusion(%a), kind=kLoop, calls=%f", True),
        ("f32[16]{0} negate(%x)", False),
        ('f32[16]{0} custom-call(%a), custom_call_target="f"', False),
        (
            "f32[16]{0} custom-call(%a), output_to_operand_aliasing={{}: (0, {})}",
            True,
        ),
        ("f32[16]{0} dynamic-update-slice(%z, %a, %i)", False),
        ("f32[16]{0} scatter(%a, %i, %u)", True),
        ("f32[16]{0} scatter(%z, %i, %a)", False),
        ("f32[16]{0} triangular-solve(%z, %a)", True),
        ("f32[16]{0} triangular-solve(%a, %z)", False),
        ("no instruction at all", False),
    ],
)
def test_in_place_is_for_some_users_only(text: str, is_right: bool) -> None:
    dump = small_dump([V("a", (0, 1)), V("b", (1, 2), text=text)])
    assert rules(dump) == ([] if is_right else ["interference/touch"])


def test_in_place_is_for_equal_shapes_unless_fused() -> None:
    flat = V("b", (1, 2), text="f32[4,4]{1,0} negate(%a)", shape="f32[4,4]{1,0}")
    assert rules(small_dump([V("a", (0, 1)), flat])) == ["interference/touch"]


def test_what_is_read_through_a_bitcast_has_its_shape() -> None:
    """As indices of a top-k, flattened and sorted where they lie (jaxlib 0.12)."""
    square = V("a", (0, 1), shape="f32[4,4]{1,0}", positions=(("flat", ()),), uses=(("b", 0, ()),))
    sort = V("b", (1, 2), text="f32[16]{0} sort(%flat)")
    assert rules(small_dump([square, sort])) == []


def test_a_sort_writes_each_operand_into_its_own_output() -> None:
    text = "(f32[16]{0}, f32[16]{0}) sort(%a, %k)"
    a = V("a", (0, 1), uses=(("b", 0, ()),))
    right, wrong = V("b", (1, 2), text=text, index=(0,)), V("b", (1, 2), text=text, index=(1,))
    assert rules(small_dump([a, right])) == []
    assert rules(small_dump([a, wrong])) == ["interference/touch"]
