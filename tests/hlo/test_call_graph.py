"""Callers, contexts and orders of computations."""

from __future__ import annotations

import pytest

from hlomem.hlo import HloModule, parse
from hlomem.hlo.call_graph import CallContext, call_graph

TEXT = """\
HloModule m, is_scheduled=true

%add {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%leaf {
  ROOT %l = f32[] parameter(0)
}

%body {
  %x = f32[] parameter(0)
  ROOT %c = f32[] call(%x), to_apply=%leaf
}

%cond {
  %y = f32[] parameter(0)
  ROOT %t = pred[] constant(true)
}

ENTRY %main {
  %p = f32[4] parameter(0)
  %z = f32[] constant(0)
  %r = f32[] reduce(%p, %z), dimensions={0}, to_apply=%add
  %w = f32[] while(%r), condition=%cond, body=%body
  ROOT %k = f32[] call(%w), to_apply=%leaf
}
"""


@pytest.fixture
def module() -> HloModule:
    return parse(TEXT)


def test_contexts_and_depths(module: HloModule) -> None:
    graph = call_graph(module)
    facts = {
        computation.name: (node.context, node.depth) for computation, node in graph.node_of.items()
    }
    assert facts == {
        "add": (CallContext.EMBEDDED, 1),
        "leaf": (CallContext.CONTROL_FLOW, 2),
        "body": (CallContext.CONTROL_FLOW, 1),
        "cond": (CallContext.CONTROL_FLOW, 1),
        "main": (CallContext.CONTROL_FLOW, 0),
    }


def test_post_order_has_callees_first(module: HloModule) -> None:
    order = [computation.name for computation in call_graph(module).post_order()]
    assert order == ["add", "leaf", "body", "cond", "main"]


def test_callers_and_dominance(module: HloModule) -> None:
    graph = call_graph(module)
    by_name = module.computation_by_name
    assert [caller.name for caller in graph.callers(by_name["leaf"])] == ["c", "k"]
    assert graph.dominates(by_name["main"], by_name["leaf"])
    assert not graph.dominates(by_name["body"], by_name["leaf"])


def test_the_graph_is_made_once(module: HloModule) -> None:
    assert call_graph(module) is call_graph(module)


def test_a_long_chain_of_calls_needs_no_stack() -> None:
    links = "".join(
        f"%c{i} {{\n  %p{i} = f32[] parameter(0)\n"
        f"  ROOT %a{i} = f32[] call(%p{i}), to_apply=%c{i - 1}\n}}\n\n"
        for i in range(1, 3000)
    )
    module = parse(f"HloModule m\n\n%c0 {{\n  ROOT %p = f32[] parameter(0)\n}}\n\n{links}")
    graph = call_graph(module)
    assert len(graph.post_order()) == 3000
    assert graph.node_of[module.computations[0]].depth == 2999
