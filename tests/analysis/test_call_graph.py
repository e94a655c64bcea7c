"""Who runs in whose flow: `service/call_graph.cc`, `hlo_opcode.cc: GetInstructionCallContext`."""

from __future__ import annotations

import pytest

from hlomem.analysis.call_graph import CallGraph
from hlomem.base.errors import ParseError
from hlomem.hlo.text.parser import parse

PROGRAM = """HloModule m

%adder (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%fused (p: f32[8]) -> f32[] {
  %p = f32[8]{0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %total = f32[] reduce(%p, %zero), dimensions={0}, to_apply=%adder
}

%body (t: f32[8]) -> f32[8] {
  %t = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%t)
}

%condition (c: f32[8]) -> pred[] {
  %c = f32[8]{0} parameter(0)
  ROOT %go = pred[] constant(false)
}

%unused (u: f32[8]) -> f32[8] {
  ROOT %u = f32[8]{0} parameter(0)
}

ENTRY %main (a: f32[8]) -> f32[] {
  %a = f32[8]{0} parameter(0)
  %loop = f32[8]{0} while(%a), condition=%condition, body=%body
  ROOT %f = f32[] fusion(%loop), kind=kLoop, calls=%fused
}
"""


def _graph(text: str = PROGRAM) -> CallGraph:
    return CallGraph(parse(text))


def test_a_loop_runs_in_the_flow_and_a_fusion_inside_one_operation() -> None:
    graph = _graph()
    by_name = graph.module.computation_by_name
    in_flow = {name for name, each in by_name.items() if graph.is_in_flow(each)}
    assert in_flow == {"main", "body", "condition"}
    assert {name for name, each in by_name.items() if graph.is_fused(each)} == {"fused"}


def test_what_a_fused_body_applies_is_embedded_and_thread_local() -> None:
    graph = _graph()
    adder, fused = (graph.module.computation_by_name[name] for name in ("adder", "fused"))
    assert graph.is_embedded(adder)
    assert graph.is_thread_local(adder)
    assert graph.is_embedded(fused)
    assert not graph.is_thread_local(fused)


def test_what_nothing_calls_is_in_no_flow() -> None:
    graph = _graph()
    unused = graph.module.computation_by_name["unused"]
    assert not graph.is_called(unused)
    assert not graph.is_in_flow(unused)
    assert not graph.is_embedded(unused)


def test_callees_of_a_body_that_stays_text_are_those_it_has_when_read() -> None:
    lazy = _graph()
    module = parse(PROGRAM)
    module.open_all()
    read = CallGraph(module)
    assert not lazy.module.computation_by_name["fused"].is_open
    for computation in module.computations:
        closed = lazy.module.computation_by_name[computation.name]
        assert [each.name for each in lazy.callees[closed]] == [
            each.name for each in read.callees[computation]
        ]


def test_each_callee_is_listed_once_with_all_its_callsites() -> None:
    text = PROGRAM.replace(
        "ROOT %f =",
        "%again = f32[8]{0} while(%loop), condition=%condition, body=%body\n  ROOT %f =",
    )
    graph = _graph(text)
    by_name = graph.module.computation_by_name
    assert [each.name for each in graph.callees[by_name["main"]]] == ["body", "condition", "fused"]
    assert [each.name for each in graph.callsites[by_name["body"]]] == ["loop", "again"]


def test_a_call_of_what_stands_below_is_refused_in_a_fused_body_too() -> None:
    adder, separator, rest = PROGRAM.partition("\n\n%fused")
    header, _, adder_text = adder.partition("\n\n")
    body, end, entry = (separator + rest).partition("\n\n%body")
    text = header + body + "\n\n" + adder_text + end + entry
    with pytest.raises(ParseError, match="before it is defined"):
        _graph(text)
