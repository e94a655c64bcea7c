"""The judge of orders lets every legal order pass and no wrong one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.schedule.check import find_problems
from hlomem.schedule.flow import Flow
from tests.schedule.programs import (
    HOMES,
    flows_of,
    iter_edges,
    name_of,
    named,
    random_order,
    stages_of,
)

WRONG_ORDERS = 1000


@settings(max_examples=200)
@given(home=st.sampled_from(HOMES), seed=st.integers(0, 2**32))
def test_every_legal_order_passes(home: Path, seed: int) -> None:
    for flow in flows_of(home):
        assert not find_problems(stages_of(home).module, named(flow, random_order(flow, seed)))


@pytest.mark.parametrize("home", HOMES, ids=name_of)
def test_the_given_order_passes(home: Path) -> None:
    module = stages_of(home).module
    orders = {flow.computation: flow.nodes for flow in flows_of(home)}
    assert not find_problems(module, orders)


def _without_edge(flow: Flow, edge: tuple[int, int]) -> list[int] | None:
    """An order that keeps all edges but one; None where others imply that one."""
    earlier, later = edge
    before = [
        [one for one in needed if (one, node) != edge] for node, needed in enumerate(flow.before)
    ]
    before[earlier] = [*before[earlier], later]
    waits = [len(needed) for needed in before]
    after: list[list[int]] = [[] for _ in before]
    for node, needed in enumerate(before):
        for one in needed:
            after[one].append(node)
    ready = [node for node, count in enumerate(waits) if not count]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for follower in after[node]:
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    return order if len(order) == len(before) else None


def _broken(flow: Flow, chance: random.Random) -> list[int] | None:
    """A wrong order: an edge turned around, a node left out, or one that stands twice."""
    nodes = list(range(len(flow.nodes)))
    kind = chance.randrange(10)
    if kind == 0:
        nodes.remove(chance.choice(nodes))
        return nodes
    if kind == 1:
        nodes[chance.choice(nodes)] = chance.choice(nodes)
        return nodes if len(set(nodes)) < len(nodes) else None
    edges = list(iter_edges(flow))
    return _without_edge(flow, chance.choice(edges)) if edges else None


def test_a_thousand_wrong_orders_are_rejected() -> None:
    chance = random.Random(1)  # noqa: S311 - not for secrets
    flows = [(home, flow) for home in HOMES for flow in flows_of(home) if len(flow.nodes) > 2]
    tried = 0
    while tried < WRONG_ORDERS:
        home, flow = chance.choice(flows)
        order = _broken(flow, chance)
        if order is not None:
            tried += 1
            assert find_problems(stages_of(home).module, named(flow, order)), (home, order)


@pytest.mark.parametrize("home", HOMES, ids=name_of)
def test_every_edge_the_search_keeps_is_one_the_judge_asks_for(home: Path) -> None:
    module = stages_of(home).module
    for flow in flows_of(home):
        edges = list(iter_edges(flow))
        chance = random.Random(2)  # noqa: S311 - not for secrets
        for edge in chance.sample(edges, min(len(edges), 25)):
            order = _without_edge(flow, edge)
            if order is not None:
                names = [flow.nodes[node].name for node in edge]
                assert find_problems(module, named(flow, order)), names
