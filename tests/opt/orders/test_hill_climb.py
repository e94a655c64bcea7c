"""Climbing goes down by what plans cost, within its number of plans."""

from __future__ import annotations

from hlomem.opt.orders.local_search import Planned, climb
from tests.opt.orders.programs import CPU, flows_of


def test_no_more_plans_are_made_than_allowed_and_none_below_the_floor() -> None:
    flow = flows_of(CPU / "g_cholesky_solve")[-1]
    order = list(range(len(flow.nodes)))
    made = []

    def plan(tried: list[int]) -> Planned:
        made.append(tried)
        return Planned(tried.index(order[-1]), flow)

    assert climb(order, plan, plans=10).plans == len(made) <= 10
    made.clear()
    climbed = climb(order, plan, plans=10, is_enough=lambda cost: cost <= len(order))
    assert (climbed.order, len(made)) == (order, 1)


def test_the_result_costs_no_more_than_any_order_tried() -> None:
    flow = flows_of(CPU / "m_overlap")[-1]
    order = list(range(len(flow.nodes)))
    costs = []

    def plan(tried: list[int]) -> Planned:
        costs.append(sum(place * node for place, node in enumerate(tried)))
        return Planned(costs[-1], flow)

    assert climb(order, plan, plans=60).cost == min(costs) < costs[0]
