"""Whose values a result holds: the `Update...ValueSet` functions of hlo_dataflow_analysis.cc."""

from __future__ import annotations

import pytest

from hlomem.hlo.text.parser import parse
from hlomem.pipeline import start_stages


def _held(*lines: str) -> dict[tuple[int, ...], list[str]]:
    """What each part of the root holds: the instructions that define it."""
    first = ["%a = f32[2]{0} parameter(0)", "%b = f32[2]{0} parameter(1)"]
    body = "\n".join(f"  {line}" for line in [*first, *lines])
    text = f"HloModule m, is_scheduled=true\n\nENTRY %e {{\n{body}\n}}\n"
    dataflow = start_stages(parse(text)).dataflow
    root = dataflow.module.entry.root
    return {
        tuple(index): [value.instruction.name for value in part]
        for index, part in zip(root.shape.parts.indices, dataflow.value_sets[root], strict=True)
    }


def test_a_tuple_holds_its_operands_under_a_table_of_its_own() -> None:
    held = _held("ROOT %t = (f32[2]{0}, f32[2]{0}) tuple(%a, %b)")
    assert held == {(): ["t"], (0,): ["a"], (1,): ["b"]}


def test_an_element_is_what_was_put_there() -> None:
    made = "%t = (f32[2]{0}, f32[2]{0}) tuple(%a, %b)"
    assert _held(made, "ROOT %g = f32[2]{0} get-tuple-element(%t), index=1") == {(): ["b"]}


@pytest.mark.parametrize("opcode", ["bitcast", "opt-barrier", "domain"])
def test_a_view_holds_what_its_operand_holds(opcode: str) -> None:
    assert _held(f"ROOT %v = f32[2]{{0}} {opcode}(%a)") == {(): ["a"]}


def test_an_array_is_copied_but_of_a_tuple_only_the_table() -> None:
    assert _held("ROOT %c = f32[2]{0} copy(%a)") == {(): ["c"]}
    made = "%t = (f32[2]{0}, f32[2]{0}) tuple(%a, %b)"
    held = _held(made, "ROOT %c = (f32[2]{0}, f32[2]{0}) copy(%t)")
    assert held == {(): ["c"], (0,): ["a"], (1,): ["b"]}


def test_a_copy_in_two_steps_hands_on_its_destination() -> None:
    start = "%s = (f32[2]{0}, f32[2]{0}, u32[]) copy-start(%a)"
    assert _held(f"ROOT {start}") == {(): ["s"], (0,): ["s"], (1,): ["a"], (2,): ["s"]}
    # At {0} stands the destination, which the start defines.
    assert _held(start, "ROOT %d = f32[2]{0} copy-done(%s)") == {(): ["s"]}


def test_a_gather_in_two_steps_keeps_its_operand_and_hands_on_its_result() -> None:
    start = "%s = (f32[2]{0}, f32[4]{0}) all-gather-start(%a), dimensions={0}"
    assert _held(f"ROOT {start}") == {(): ["s"], (0,): ["a"], (1,): ["s"]}
    assert _held(start, "ROOT %d = f32[4]{0} all-gather-done(%s)") == {(): ["s"]}


def test_what_is_sent_stays_where_it_is() -> None:
    held = _held("ROOT %s = (f32[2]{0}, u32[], token[]) send(%a, %b), channel_id=1")
    assert held == {(): ["s"], (0,): ["a"], (1,): ["s"], (2,): ["s"]}


def test_an_opcode_nobody_knows_hands_nothing_on() -> None:
    assert _held("ROOT %x = f32[2]{0} frobnicate(%a)") == {(): ["x"]}


PAIR = "(f32[2]{0}, f32[2]{0})"


@pytest.mark.parametrize(
    "operands",
    [("%a, %b", ()), ("%t", (f"%t = {PAIR} tuple(%a, %b)",))],
    ids=["several", "a tuple"],
)
def test_a_permute_holds_every_operand_it_sends(operands: tuple[str, tuple[str, ...]]) -> None:
    given, made = operands
    start = f"ROOT %s = ({PAIR}, {PAIR}, u32[], u32[]) collective-permute-start({given})"
    held = _held(*made, f"{start}, source_target_pairs={{{{0,1}}}}")
    assert (held[0, 0], held[0, 1]) == (["a"], ["b"])
    assert all(held[index] == ["s"] for index in ((), (1,), (2,), (3,)))
