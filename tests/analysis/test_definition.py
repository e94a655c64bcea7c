"""The first step of dataflow analysis: who defines a value, and which ids are taken."""

from __future__ import annotations

import pytest

from hlomem.analysis.call_graph import CallGraph
from hlomem.analysis.definition import ValueTable, define_values
from hlomem.hlo.text.parser import parse
from tests.analysis.programs import CONDITIONAL
from tests.analysis.test_dataflow import ASYNC_SLICE, LOOP


def _table(text: str) -> ValueTable:
    module = parse(text)
    return define_values(module.computations, CallGraph(module))


def _defined(table: ValueTable, name: str) -> list[str]:
    """The indices of the parts an instruction defines."""
    return [str(value.index) for value in table.values.values() if value.instruction.name == name]


def test_ids_follow_the_order_of_definition_without_a_gap() -> None:
    assert list(_table(LOOP).values) == list(range(len(_table(LOOP).values)))


def test_a_body_of_a_fusion_takes_ids_and_is_not_looked_at() -> None:
    table = _table(CONDITIONAL)
    # `fused_computation.1` comes first and has four values, `wrapped_subtract_computation` three.
    assert next(iter(table.values)) == 7
    assert {instruction.parent.name for instruction in table.sets} == {
        "region_0.1",
        "region_1.2",
        "main.3",
    }


@pytest.mark.parametrize(
    ("name", "indices"),
    [
        ("a", ["{}"]),
        ("p", []),  # it receives what the loop carries
        ("init", ["{}"]),  # a tuple makes its table only
        ("i", []),
        ("loop", []),
        ("next", ["{}"]),
    ],
)
def test_only_what_is_new_gets_a_value(name: str, indices: list[str]) -> None:
    assert _defined(_table(LOOP), name) == indices


def test_the_end_of_an_operation_far_from_its_start_has_what_the_start_holds() -> None:
    text = ASYNC_SLICE.replace(
        "%done = f32[4]{0} async-done(%start)",
        "%other = ((f32[8]{0}), f32[4]{0}, u32[]) opt-barrier(%start)\n"
        "  %done = f32[4]{0} async-done(%other)",
    )
    table = _table(text)
    assert _defined(table, "done") == _defined(table, "other") == []
