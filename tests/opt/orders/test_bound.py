"""The bound of a program's temporaries holds for every order of it, as planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem import hlo
from hlomem.hlo.ir import HloComputation, HloInstruction
from hlomem.hlo.schedule import Schedule
from hlomem.opt.goal import Rules
from hlomem.opt.orders.bound import lower_bound, weigh
from hlomem.opt.orders.model import peak_of
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.orders.search import improve
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.orders.programs import HOMES, flows_of, named, random_order, stages_of


@settings(max_examples=150)
@given(home=st.sampled_from(HOMES), seed=st.integers(0, 2**32))
def test_no_legal_order_is_planned_below_the_bound(home: Path, seed: int) -> None:
    stages = stages_of(home)
    bound = improve(stages, Rules("low")).bound
    assert bound is not None
    orders: dict[HloComputation, list[HloInstruction]] = {}
    for flow in flows_of(home):
        orders |= named(flow, random_order(flow, seed))
    again = stages.rescheduled(Schedule(orders))
    assert temporary_bytes(again) >= bound


@settings(max_examples=150)
@given(home=st.sampled_from(HOMES), seed=st.integers(0, 2**32))
def test_no_legal_order_has_a_peak_below_that_of_the_model(home: Path, seed: int) -> None:
    for flow in flows_of(home):
        bound = lower_bound(flow, may_borrow=False)
        assert bound is not None
        assert peak_of(flow, random_order(flow, seed)) >= bound


@given(
    st.integers(0, 9).flatmap(
        lambda count: st.tuples(
            st.lists(st.tuples(st.integers(0, 2**count - 1), st.integers(0, 2**70))),
            st.just(count),
        )
    )
)
def test_weights_are_added_up_for_every_node(case: tuple[list[tuple[int, int]], int]) -> None:
    sets, count = case
    sums = [sum(weight for nodes, weight in sets if nodes >> node & 1) for node in range(count)]
    assert weigh(sets, count) == sums


LOOP = """HloModule m, is_scheduled=true

%step (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  %s = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[4]{0} get-tuple-element(%s), index=1
  %big = f32[6144]{0} custom-call(%x), custom_call_target="make"
  %y = f32[4]{0} custom-call(%big), custom_call_target="read"
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  ROOT %t = (s32[], f32[4]) tuple(%next, %y)
}

%more (s: (s32[], f32[4])) -> pred[] {
  %s = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(9)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %e (p: f32[4]) -> (f32[WIDE], f32[WIDE]) {
  %p = f32[4]{0} parameter(0)
  %zero = s32[] constant(0)
  %x = f32[4]{0} custom-call(%p), custom_call_target="make"
  %t = (s32[], f32[4]) tuple(%zero, %x)
  %w = (s32[], f32[4]) while(%t), condition=%more, body=%step
  %y = f32[4]{0} get-tuple-element(%w), index=1
  %a = f32[WIDE]{0} custom-call(%y), custom_call_target="make"
  %b = f32[WIDE]{0} custom-call(%a), custom_call_target="make"
  ROOT %r = (f32[WIDE], f32[WIDE]) tuple(%a, %b)
}
"""


@pytest.mark.parametrize(("wide", "is_lent"), [(4096, False), (6144, True)])
def test_what_a_loop_needs_lies_in_a_result_only_if_it_fits_one(wide: int, is_lent: bool) -> None:
    module = hlo.parse(LOOP.replace("WIDE", str(wide)))
    found = improve(start_stages(module, order_lists=in_text_order))
    assert found.bound is not None
    assert (found.bound < 4 * 6144) == is_lent
    assert found.bound <= found.after
