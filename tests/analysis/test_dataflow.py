"""Values and their ids, as jaxlib 0.12.0.1 printed them."""

from __future__ import annotations

import pytest

from hlomem.base.errors import UnsupportedError
from hlomem.hlo.text.parser import parse
from hlomem.pipeline import run_stages
from tests.analysis.programs import CONDITIONAL, DONATE_SWAP

LOOP = """\
HloModule loop, is_scheduled=true

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8]{0} get-tuple-element(%p), index=1
  %next = s32[] add(%i, %i)
  ROOT %result = (s32[], f32[8]{0}) tuple(%next, %x)
}

%condition (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]{0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  ROOT %less = pred[] compare(%j, %j), direction=LT
}

ENTRY %main (a: s32[], b: f32[8]) -> (s32[], f32[8]) {
  %a = s32[] parameter(0)
  %b = f32[8]{0} parameter(1)
  %copy = s32[] copy(%a)
  %init = (s32[], f32[8]{0}) tuple(%copy, %b)
  ROOT %loop = (s32[], f32[8]{0}) while(%init), condition=%condition, body=%body
}
"""


def _values(text: str) -> dict[int, str]:
    values = run_stages(parse(text)).dataflow.values
    return {
        value.id: f"{value.instruction.name}{value.index or ''}{' phi' if value.is_phi else ''}"
        for value in values
    }


def test_values_of_a_conditional_have_the_ids_xla_gives_them() -> None:
    values = _values(CONDITIONAL)
    expected = {3: "ynn_fusion", 4: "copy.3", 5: "tuple.2", 15: "wrapped_subtract"}
    expected |= {16: "multiply_fusion", 17: "tuple", 18: "p.1", 19: "wrapped_convert", 20: "x.1"}
    expected |= {21: "y.1", 22: "cond.5", 23: "cond.7 phi", 24: "cond.7{0} phi"}
    assert values == expected | {25: "cond.7{1} phi"}


def test_control_predecessors_come_first_in_the_numbering() -> None:
    names = ["a.1", "copy", "b.1", "copy.1", "copy.2", "copy.3", "tuple"]
    assert _values(DONATE_SWAP) == dict(enumerate(names))


ASYNC_SLICE = """\
HloModule async, is_scheduled=true

%wrapped (p: f32[8]) -> f32[4] {
  %p = f32[8]{0} parameter(0)
  ROOT %s = f32[4]{0} slice(%p), slice={[0:4]}
}

ENTRY %main (a: f32[8]) -> f32[4] {
  %a = f32[8]{0} parameter(0)
  %start = ((f32[8]{0}), f32[4]{0}, s32[]) async-start(%a), calls=%wrapped
  %done = f32[4]{0} async-done(%start)
  ROOT %n = f32[4]{0} negate(%done)
}
"""

LATE_OPERAND = """\
HloModule late, is_scheduled=true

%wrapped (p: f32[8]) -> f32[4] {
  %p = f32[8]{0} parameter(0)
  ROOT %s = f32[4]{0} slice(%p), slice={[0:4]}
}

ENTRY %main (a: f32[8]) -> f32[4] {
  %start = ((), (), s32[]) async-start(), calls=%wrapped
  %a = f32[8]{0} parameter(0)
  %update = ((f32[8]{0}), f32[4]{0}, s32[]) async-update(%start, %a)
  ROOT %done = f32[4]{0} async-done(%update)
}
"""


def test_a_carry_that_changes_is_a_phi_and_one_that_does_not_is_none() -> None:
    names = set(_values(LOOP).values())
    assert {"p{0} phi", "q{0} phi", "loop{0} phi"} <= names
    assert not {"p{1} phi", "q{1} phi", "loop{1} phi"} & names


def test_a_value_appears_wherever_it_is_handed_on() -> None:
    stages = run_stages(parse(LOOP))
    b = next(each for each in stages.dataflow.values if each.instruction.name == "b")
    positions = {(each.name, str(index)) for each, index in b.positions}
    assert positions == {
        ("b", "{}"),
        ("p", "{1}"),
        ("x", "{}"),
        ("result", "{1}"),
        ("q", "{1}"),
        ("init", "{1}"),
        ("loop", "{1}"),
    }


def test_a_construct_that_is_not_modelled_is_named_with_its_place() -> None:
    text = ASYNC_SLICE.replace("((f32[8]{0}), f32[4]{0}, s32[])", "(f32[8]{0}, f32[4]{0}, s32[])")
    with pytest.raises(UnsupportedError) as caught:
        run_stages(parse(text))
    assert "async-start" in caught.value.problem
    assert caught.value.line == 10


def _positions(text: str) -> dict[str, set[str]]:
    return {
        f"{value.instruction.name}{value.index or ''}": {
            f"{instruction.name}{index or ''}" for instruction, index in value.positions
        }
        for value in run_stages(parse(text)).dataflow.values
    }


def test_an_async_operation_hands_on_its_operands_and_what_it_wraps_returns() -> None:
    positions = _positions(ASYNC_SLICE)
    assert positions["a"] == {"a", "p", "start{0,0}"}
    assert positions["s"] == {"s", "start{1}", "done"}


def test_an_async_operation_defines_its_tables_and_contexts() -> None:
    defined = set(_positions(ASYNC_SLICE))
    assert defined == {"a", "s", "start", "start{0}", "start{2}", "n"}


def test_an_update_may_bring_the_operands() -> None:
    positions = _positions(LATE_OPERAND)
    assert positions["a"] == {"a", "p", "update{0,0}"}
    assert positions["s"] == {"s", "update{1}", "done"}
    assert {"start{0}", "start{1}", "update{0}", "update{2}"} <= set(positions)


def test_a_module_without_a_schedule_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="has no schedule"):
        run_stages(parse(LOOP.replace(", is_scheduled=true", "")))


CALLED_TWICE = """\
HloModule m, is_scheduled=true

%f (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %b = f32[8]{0} bitcast(%x)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %n = f32[8]{0} negate(%p)
  %c = f32[8]{0} call(%n), to_apply=%f
  ROOT %d = f32[8]{0} call(%c), to_apply=%f
}
"""


def test_calls_may_put_values_only_at_so_many_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_stages(parse(CALLED_TWICE)).dataflow.values
    monkeypatch.setattr("hlomem.analysis.dataflow._FREE_POSITIONS", -1)
    monkeypatch.setattr("hlomem.analysis.dataflow._MAX_VALUES", 1)
    with pytest.raises(UnsupportedError, match=r"the calls of `f` put values at \d+ positions"):
        run_stages(parse(CALLED_TWICE))
