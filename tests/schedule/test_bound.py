"""The bound of a program's temporaries holds for every order of it, as planned."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.hlo.ir import HloComputation, HloInstruction
from hlomem.hlo.schedule import Schedule
from hlomem.schedule.bound import lower_bound
from hlomem.schedule.model import peak_of
from hlomem.schedule.planned_orders import temporary_bytes
from hlomem.schedule.search import improve
from tests.schedule.programs import HOMES, flows_of, named, random_order, stages_of


@settings(max_examples=150)
@given(home=st.sampled_from(HOMES), seed=st.integers(0, 2**32))
def test_no_legal_order_is_planned_below_the_bound(home: Path, seed: int) -> None:
    stages = stages_of(home)
    bound = improve(stages, "low").bound
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
        assert peak_of(flow, random_order(flow, seed)).size >= bound
