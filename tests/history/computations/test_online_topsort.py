"""The online order: always topological, and newest first where edges leave it open."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.history.computations.incremental_order import OnlineTopologicalSort


def test_without_edges_the_oldest_is_last() -> None:
    order = OnlineTopologicalSort()
    nodes = [order.add_node() for _ in range(3)]
    assert order.reverse_order() == nodes


def test_a_caller_moves_before_what_is_made_for_it() -> None:
    order = OnlineTopologicalSort()
    region, main, fused = (order.add_node() for _ in range(3))
    order.add_edge(main, region)
    order.add_edge(main, fused)
    assert order.reverse_order() == [region, fused, main]


_NODES = 15
_RANK = [(7 * node) % _NODES for node in range(_NODES)]
_EDGES = [
    (one, two) for one in range(_NODES) for two in range(_NODES) if _RANK[one] < _RANK[two]
]  # from lower to higher rank: no cycles


@given(st.permutations(_EDGES), st.integers(1, len(_EDGES)))
@settings(max_examples=30)
def test_every_edge_points_forward(edges: list[tuple[int, int]], count: int) -> None:
    order = OnlineTopologicalSort()
    for _ in range(_NODES):
        order.add_node()
    for number, (source, target) in enumerate(edges[:count], 1):
        order.add_edge(source, target)
        place = {node: i for i, node in enumerate(reversed(order.reverse_order()))}
        assert all(place[source] < place[target] for source, target in edges[:number])
