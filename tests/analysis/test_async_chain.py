"""Chains of asynchronous operations, after `hlo/ir/hlo_instruction_utils.cc`."""

from __future__ import annotations

from hlomem.analysis.async_chain import (
    async_chain,
    bound_operands,
    carries_result,
    is_fully_bound_here,
    is_supported_async,
    wrapped_computation,
)
from hlomem.hlo.ir import HloInstruction
from hlomem.hlo.text.parser import parse

WHOLE = """HloModule m, is_scheduled=true

%wrapped (x: f32[8], y: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  ROOT %sum = f32[8]{0} add(%x, %y)
}

ENTRY %main (a: f32[8], b: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %start = ((f32[8]{0}, f32[8]{0}), f32[8]{0}, u32[]) async-start(%a, %b), calls=%wrapped
  %update = ((f32[8]{0}, f32[8]{0}), f32[8]{0}, u32[]) async-update(%start)
  ROOT %done = f32[8]{0} async-done(%update)
}
"""
LATE = WHOLE.replace(
    "((f32[8]{0}, f32[8]{0}), f32[8]{0}, u32[]) async-start(%a, %b)",
    "((f32[8]{0}), (), u32[]) async-start(%a)",
).replace("async-update(%start)", "async-update(%start, %b)")
"""The start has one operand and no place for the result; the update brings both."""


def _chain(text: str) -> dict[str, HloInstruction]:
    return {each.name: each for each in parse(text).entry.instructions}


def test_a_chain_goes_from_its_start_to_what_ends_it() -> None:
    chain = _chain(WHOLE)
    assert [each.name for each in async_chain(chain["start"])] == ["start", "update", "done"]
    assert {wrapped_computation(chain[name]).name for name in ("start", "update", "done")} == {
        "wrapped"
    }


def test_operands_are_bound_as_they_come() -> None:
    whole, late = _chain(WHOLE), _chain(LATE)
    assert [each.name for each in bound_operands(whole["start"])] == ["a", "b"]
    assert [each.name for each in bound_operands(late["start"])] == ["a"]
    assert [each.name for each in bound_operands(late["done"])] == ["a", "b"]


def test_what_is_wrapped_runs_once_where_all_operands_are_first_there() -> None:
    for text, place in ((WHOLE, "start"), (LATE, "update")):
        chain = _chain(text)
        running = [name for name in ("start", "update", "done") if is_fully_bound_here(chain[name])]
        assert running == [place]


def test_an_operation_without_room_for_the_result_has_no_output() -> None:
    pair = WHOLE.replace("ROOT %sum = f32[8]{0} add(%x, %y)", "ROOT %sum = (f32[8]{0}) tuple(%x)")
    assert carries_result(_chain(WHOLE)["start"])
    assert not carries_result(
        _chain(pair.replace(") -> f32[8] {\n  %x", ") -> (f32[8]) {\n  %x"))["start"]
    )


def test_shapes_that_do_not_fit_are_not_modelled() -> None:
    assert all(is_supported_async(_chain(WHOLE)[name]) for name in ("start", "update", "done"))
    odd = WHOLE.replace("ROOT %done = f32[8]{0}", "ROOT %done = (f32[8]{0})")
    assert not is_supported_async(_chain(odd)["done"])
    cut = WHOLE.replace(
        "((f32[8]{0}, f32[8]{0}), f32[8]{0}, u32[]) async-start",
        "((f32[8]{0}), f32[8]{0}, u32[]) async-start",
    )
    assert not is_supported_async(_chain(cut)["start"])


def test_a_chain_without_an_end_is_as_long_as_it_is() -> None:
    text = (
        WHOLE.replace("  ROOT %done = f32[8]{0} async-done(%update)\n", "")
        .replace("%update =", "ROOT %update =")
        .replace("-> f32[8] {\n  %a", "-> ((f32[8], f32[8]), f32[8], u32[]) {\n  %a")
    )
    assert [each.name for each in async_chain(_chain(text)["start"])] == ["start", "update"]
