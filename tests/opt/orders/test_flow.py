"""The edges of a flow allow XLA's order, and what they count is what XLA's plan holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.machines.options import Options
from hlomem.opt.orders.flow import Flow, FlowBuilder
from hlomem.opt.orders.model import peak_of
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.orders.programs import HOMES, flows_of, iter_edges, name_of, stages_of


@pytest.mark.parametrize("home", HOMES, ids=name_of)
def test_xlas_own_order_keeps_every_edge(home: Path) -> None:
    for flow in flows_of(home):
        assert all(earlier < later for earlier, later in iter_edges(flow))


def _flow(body: str, header: str = "", others: str = "", **options: bool) -> Flow:
    module = hlo.parse(f"HloModule m, is_scheduled=true{header}\n{others}\nENTRY %e {{\n{body}}}\n")
    builder = FlowBuilder(start_stages(module, Options(), order_lists=in_text_order), **options)
    return builder.build(module.entry, dict.fromkeys(builder.computations(), 0))


def _edges(flow: Flow) -> set[tuple[str, str]]:
    return {(flow.nodes[one].name, flow.nodes[other].name) for one, other in iter_edges(flow)}


DONATED = """
  %p = f32[8] parameter(0)
  %read = f32[8] negate(%p)
  %one = f32[8] constant({1, 1, 1, 1, 1, 1, 1, 1})
  %new = f32[8] add(%one, %one)
  ROOT %t = (f32[8], f32[8]) tuple(%new, %read)
"""


def test_a_given_argument_is_read_before_the_result_takes_its_place() -> None:
    alias = ", input_output_alias={ {0}: (0, {}, may-alias) }"
    assert ("read", "new") in _edges(_flow(DONATED, alias))
    assert ("read", "new") not in _edges(_flow(DONATED))


UPDATED = """
  %p = f32[8] parameter(0)
  %x = f32[8] negate(%p)
  %i = s32[] constant(0)
  %v = f32[1] constant({1})
  %read = f32[8] sine(%x)
  %new = f32[8] dynamic-update-slice(%x, %v, %i)
  ROOT %t = (f32[8], f32[8]) tuple(%new, %read)
"""


def test_what_is_updated_in_place_is_read_before() -> None:
    assert ("read", "new") in _edges(_flow(UPDATED))


CALLED = """
%update (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %i = s32[] constant(0)
  %v = f32[1] constant({1})
  ROOT %u = f32[8] dynamic-update-slice(%a, %v, %i)
}
"""
CALLING = """
  %p = f32[8] parameter(0)
  %x = f32[8] negate(%p)
  %read = f32[8] sine(%x)
  %new = f32[8] call(%x), to_apply=%update
  ROOT %t = (f32[8], f32[8]) tuple(%new, %read)
"""


def test_what_a_called_computation_writes_over_is_read_before_the_call() -> None:
    assert ("read", "new") in _edges(_flow(CALLING, others=CALLED))


COLLECTIVES = """
  %p = f32[8] parameter(0)
  %a = f32[16] all-gather(%p), dimensions={0}
  %n = f32[8] negate(%p)
  %b = f32[16] all-gather(%n), dimensions={0}
  ROOT %t = (f32[16], f32[16]) tuple(%a, %b)
"""


def test_collectives_keep_their_order_unless_they_may_lose_it() -> None:
    assert ("a", "b") in _edges(_flow(COLLECTIVES))
    assert ("a", "b") not in _edges(_flow(COLLECTIVES, may_reorder_collectives=True))


EFFECTS = """
  %p = f32[8] parameter(0)
  %a = f32[8] custom-call(%p), custom_call_target="f", custom_call_has_side_effect=true
  %b = f32[8] custom-call(%p), custom_call_target="g", custom_call_has_side_effect=true
  %c = f32[8] custom-call(%p), custom_call_target="h"
  ROOT %t = (f32[8], f32[8], f32[8]) tuple(%a, %b, %c)
"""


def test_effects_outside_the_program_happen_in_their_order() -> None:
    edges = _edges(_flow(EFFECTS, may_reorder_collectives=True))
    assert ("a", "b") in edges
    assert not {("a", "c"), ("b", "c")} & edges


LOOPS = """
%body.1 (a: (f32[8])) -> (f32[8]) {
  %a = (f32[8]) parameter(0)
  %x = f32[8] get-tuple-element(%a), index=0
  %y = f32[8] custom-call(%x), custom_call_target="f", custom_call_has_side_effect=true
  ROOT %r = (f32[8]) tuple(%y)
}
%condition.1 (b: (f32[8])) -> pred[] {
  %b = (f32[8]) parameter(0)
  ROOT %c = pred[] constant(true)
}
"""
LOOPING = """
  %p = f32[8] parameter(0)
  %first = f32[8] custom-call(%p), custom_call_target="f", custom_call_has_side_effect=true
  %n = f32[8] negate(%p)
  %i = (f32[8]) tuple(%n)
  %loop = (f32[8]) while(%i), condition=%condition.1, body=%body.1
  %z = f32[8] get-tuple-element(%loop), index=0
  ROOT %t = (f32[8], f32[8]) tuple(%z, %first)
"""


def test_a_loop_has_the_effects_of_its_body() -> None:
    assert ("first", "loop") in _edges(_flow(LOOPING, others=LOOPS))


HIDDEN = """
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %s = (f32[8], f32[16]) all-gather-start(%p), dimensions={0}
  %work = f32[8] negate(%q)
  %d = f32[16] all-gather-done(%s)
  ROOT %t = (f32[16], f32[8]) tuple(%d, %work)
"""


def test_what_hides_a_transfer_goes_on_hiding_it() -> None:
    assert {("s", "work"), ("work", "d")} <= _edges(_flow(HIDDEN))
    assert not {("s", "work"), ("work", "d")} & _edges(_flow(HIDDEN, keeps_overlap=False))


def test_a_value_made_inside_a_call_is_alive_where_the_caller_reads_it() -> None:
    body = """
  %p = f32[8] parameter(0)
  %new = f32[8] call(%p), to_apply=%make
  %a = f32[8] negate(%p)
  %b = f32[8] add(%new, %a)
  ROOT %c = f32[8] sine(%b)
"""
    made = """
%make (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  ROOT %u = f32[8] cosine(%a)
}
"""
    flow = _flow(body, others=made)
    assert flow.nodes[flow.values[0].made_by].name == "new"
    assert peak_of(flow, range(len(flow.nodes))) == 64


@pytest.mark.parametrize("home", HOMES, ids=name_of)
def test_a_flow_built_again_is_as_one_of_a_new_builder(home: Path) -> None:
    stages = stages_of(home)
    builder = FlowBuilder(stages)
    for computation in builder.computations():
        builder.build(computation, {})
        peaks = dict.fromkeys(builder.computations(), len(computation.instructions))
        again, new = (
            builder.build(computation, peaks),
            FlowBuilder(stages).build(computation, peaks),
        )
        for name in Flow.__struct_fields__:
            assert getattr(again, name) == getattr(new, name)
