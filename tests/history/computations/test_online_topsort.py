"""The online order: always topological, and newest first where edges leave it open."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.history.computations.online_topsort import OnlineTopologicalSort


def test_without_edges_the_oldest_is_last() -> None:
    order: OnlineTopologicalSort[str] = OnlineTopologicalSort()
    for name in "abc":
        order.add_node(name)
    assert order.reverse_order() == ["a", "b", "c"]


def test_a_caller_moves_before_what_is_made_for_it() -> None:
    order: OnlineTopologicalSort[str] = OnlineTopologicalSort()
    for name in ("region", "main", "fused"):
        order.add_node(name)
    order.add_edge("main", "region")
    order.add_edge("main", "fused")
    assert order.reverse_order() == ["region", "fused", "main"]


_NODES = 15
_RANK = [(7 * node) % _NODES for node in range(_NODES)]
_EDGES = [
    (one, two) for one in range(_NODES) for two in range(_NODES) if _RANK[one] < _RANK[two]
]  # from lower to higher rank: no cycles


@given(st.permutations(_EDGES), st.integers(1, len(_EDGES)))
@settings(max_examples=30)
def test_every_edge_points_forward(edges: list[tuple[int, int]], count: int) -> None:
    order: OnlineTopologicalSort[int] = OnlineTopologicalSort()
    for node in range(_NODES):
        order.add_node(node)
    for number, (source, target) in enumerate(edges[:count], 1):
        order.add_edge(source, target)
        place = {node: i for i, node in enumerate(reversed(order.reverse_order()))}
        assert all(place[source] < place[target] for source, target in edges[:number])


def test_a_sort_that_is_cleared_leaves_nothing_to_a_collector() -> None:
    order: OnlineTopologicalSort[_Node] = OnlineTopologicalSort()
    nodes = [_Node() for _ in range(3)]
    for node in nodes:
        order.add_node(node)
    order.add_edge(nodes[2], nodes[0])
    order.add_edge(nodes[1], nodes[2])
    left = [weakref.ref(node) for node in nodes]
    gc.disable()
    try:
        order.clear()
        del node, nodes
        assert [reference() for reference in left] == [None, None, None]
    finally:
        gc.enable()


class _Node:
    """Something that can be told to be gone."""
