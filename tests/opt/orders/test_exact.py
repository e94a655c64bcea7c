"""Branch and bound finds the least peak, and says so only when it is."""

from __future__ import annotations

from itertools import permutations

import pytest

from hlomem.opt.orders.exact import prove
from hlomem.opt.orders.flow import Flow
from hlomem.opt.orders.model import levels_of, peak_of
from tests.opt.orders.programs import HOMES, flows_of, iter_edges, name_of

SMALL = [
    (name_of(home), flow) for home in HOMES for flow in flows_of(home) if 3 <= len(flow.nodes) <= 7
]


def _least_peak(flow: Flow) -> int:
    """Over all orders, one by one."""
    edges = list(iter_edges(flow))
    return min(
        peak_of(flow, order)
        for order in permutations(range(len(flow.nodes)))
        if all(order.index(earlier) < order.index(later) for earlier, later in edges)
    )


@pytest.mark.parametrize(("name", "flow"), SMALL[:40], ids=[name for name, _ in SMALL[:40]])
def test_the_proven_peak_is_the_least_of_all_orders(name: str, flow: Flow) -> None:
    proof = prove(flow, list(range(len(flow.nodes))), floor=0, steps=100_000)
    assert proof.is_proven, name
    assert proof.peak == peak_of(flow, proof.order) == _least_peak(flow)


MEDIUM = [
    (name_of(home), flow) for home in HOMES for flow in flows_of(home) if 8 <= len(flow.nodes) <= 14
]


def _least_peak_by_sets(flow: Flow) -> int:
    """Over all sets of nodes that may have run: what is alive then does not depend on the way."""
    best: dict[frozenset[int], tuple[int, list[int]]] = {frozenset(): (0, [])}
    for _ in flow.nodes:
        following: dict[frozenset[int], tuple[int, list[int]]] = {}
        for done, (peak, order) in best.items():
            for node, needed in enumerate(flow.before):
                if node not in done and done.issuperset(needed):
                    level = levels_of(flow, [*order, node])[-1]
                    found = (max(peak, level), [*order, node])
                    known = following.setdefault(done | {node}, found)
                    following[done | {node}] = min(known, found)
        best = following
    [(peak, _)] = best.values()
    return peak


@pytest.mark.parametrize(("name", "flow"), MEDIUM[:40], ids=[name for name, _ in MEDIUM[:40]])
def test_the_proven_peak_is_the_least_over_all_sets(name: str, flow: Flow) -> None:
    proof = prove(flow, list(range(len(flow.nodes))), floor=-1, steps=100_000)
    assert proof.is_proven, name
    assert proof.peak == _least_peak_by_sets(flow)


def test_nothing_is_proven_without_steps() -> None:
    flow = max(
        (flow for home in HOMES for flow in flows_of(home)), key=lambda flow: len(flow.nodes)
    )
    proof = prove(flow, list(range(len(flow.nodes))), floor=-1, steps=1)
    assert not proof.is_proven
    assert proof.order == list(range(len(flow.nodes)))
