"""The second step of dataflow analysis: values reach whatever may hold them."""

from __future__ import annotations

from hlomem.analysis.call_graph import CallGraph
from hlomem.analysis.definition import define_values
from hlomem.analysis.forwarding import forward_rules
from hlomem.analysis.propagation import Propagation
from hlomem.hlo.text.parser import parse
from tests.analysis.test_dataflow import LATE_OPERAND, LOOP

TWO_CALLS = """\
HloModule calls, is_scheduled=true

%callee (p: f32[8]) -> f32[8] {
  ROOT %p = f32[8]{0} parameter(0)
}

ENTRY %main (a: f32[8]) -> (f32[8], f32[8]) {
  %a = f32[8]{0} parameter(0)
  %n = f32[8]{0} negate(%a)
  %one = f32[8]{0} call(%a), to_apply=%callee
  %two = f32[8]{0} call(%n), to_apply=%callee
  ROOT %both = (f32[8]{0}, f32[8]{0}) tuple(%one, %two)
}
"""


def _propagated(
    text: str, *, marks_calls: bool = False
) -> tuple[dict[str, list[list[str]]], Propagation]:
    """The definers of the values in each part of each result, when nothing changes any more."""
    module = parse(text)
    graph = CallGraph(module)
    table = define_values(module.computations, graph, marks_calls=marks_calls)
    propagation = Propagation(table, graph, forward_rules(marks_calls=marks_calls))
    propagation.run()
    held = {
        instruction.name: [[value.instruction.name for value in part] for part in parts]
        for instruction, parts in table.sets.items()
    }
    return held, propagation


def test_a_parameter_may_hold_the_argument_of_every_call() -> None:
    held, _ = _propagated(TWO_CALLS)
    assert held["p"] == held["one"] == held["two"] == [["a", "n"]]
    assert held["both"] == [["both"], ["a", "n"], ["a", "n"]]


def test_a_loop_meets_what_it_starts_from_and_what_its_body_returns() -> None:
    held, propagation = _propagated(LOOP)
    assert held["p"][1:] == [["p"], ["p"]]  # a phi for each element, needed or not
    assert held["i"] == [["p"]]
    assert held["result"] == [["result"], ["next"], ["p"]]
    assert not propagation.dead


def test_an_operand_that_is_bound_late_reaches_the_computation() -> None:
    held, _ = _propagated(LATE_OPERAND)
    assert held["p"] == [["a"]]
    assert held["done"] == [["s"]]


MARKED = """\
HloModule marked, is_scheduled=true

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %before = (f32[8]{0}) custom-call(%a), custom_call_target="__xla_internal_call_marker_before"
  %b = f32[8]{0} get-tuple-element(%before), index=0
  %n = f32[8]{0} custom-call(%b), custom_call_target="other"
  ROOT %after = f32[8]{0} custom-call(%n), custom_call_target="__xla_internal_call_marker_after"
}
"""


def test_marks_around_inlined_code_hand_on_since_jaxlib_0_12() -> None:
    held, _ = _propagated(MARKED, marks_calls=True)
    assert held["before"] == [["before"], ["a"]]
    assert held["after"] == [["n"]]
    held, _ = _propagated(MARKED)
    assert held["before"] == [["before"], ["before"]]
    assert held["after"] == [["after"]]
