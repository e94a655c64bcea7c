"""Values and their ids, as jaxlib 0.12.0.1 printed them."""

from __future__ import annotations

import pytest

from hlomem.errors import UnsupportedError
from hlomem.hlo.parser import parse
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
    text = """\
HloModule async, is_scheduled=true

%wrapped (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%p)
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %start = ((f32[8]{0}), f32[8]{0}, s32[]) async-start(%a), calls=%wrapped
  ROOT %done = f32[8]{0} async-done(%start)
}
"""
    with pytest.raises(UnsupportedError) as caught:
        run_stages(parse(text))
    assert "async-start" in caught.value.problem
    assert caught.value.line == 10


def test_a_module_without_a_schedule_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not scheduled"):
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
    monkeypatch.setattr("hlomem.analysis.dataflow._MOST_VALUES", 1)
    with pytest.raises(UnsupportedError, match=r"the calls of `f` put values at \d+ positions"):
        run_stages(parse(CALLED_TWICE))
