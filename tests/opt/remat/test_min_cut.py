"""A least cut is worth what the cheapest of all cuts is."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.opt.remat.min_cut import Network

COUNT = 6
_EDGES = st.lists(
    st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1), st.integers(0, 9)),
    max_size=16,
)


def _worth(edges: list[tuple[int, int, int]], side: set[int]) -> int:
    return sum(room for start, end, room in edges if start in side and end not in side)


@settings(max_examples=200, deadline=None)
@given(_EDGES)
def test_no_cut_is_worth_less(edges: list[tuple[int, int, int]]) -> None:
    network = Network(COUNT)
    for start, end, room in edges:
        network.connect(start, end, room)
    side = network.source_side(0, COUNT - 1)
    assert 0 in side
    assert COUNT - 1 not in side
    inner = range(1, COUNT - 1)
    every = [{0, *chosen} for size in range(COUNT - 1) for chosen in combinations(inner, size)]
    assert _worth(edges, side) == min(_worth(edges, other) for other in every)


@settings(max_examples=200, deadline=None)
@given(_EDGES, st.lists(st.tuples(st.integers(0, 15), st.integers(0, 9)), max_size=6))
def test_an_edge_of_another_capacity_leads_to_the_cut_of_a_new_network(
    edges: list[tuple[int, int, int]], changes: list[tuple[int, int]]
) -> None:
    network = Network(COUNT)
    numbers = [network.connect(*edge) for edge in edges]
    network.source_side(0, COUNT - 1)
    for place, room in changes:
        if place < len(edges) and network.resize(numbers[place], room):
            edges[place] = (*edges[place][:2], room)
            fresh = Network(COUNT)
            for edge in edges:
                fresh.connect(*edge)
            assert network.source_side(0, COUNT - 1) == fresh.source_side(0, COUNT - 1)
