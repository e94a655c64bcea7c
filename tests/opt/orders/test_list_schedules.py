"""Constructions and moves are orders that keep every edge."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.opt.orders.local_search import MovesLeft, improve_order, iter_moves
from hlomem.opt.orders.model import Timeline, peak_of
from hlomem.opt.orders.one_computation import iter_constructions
from tests.opt.orders.programs import HOMES, flows_of, iter_edges, name_of


def _is_legal(flow_edges: list[tuple[int, int]], order: list[int]) -> bool:
    place_of = {node: place for place, node in enumerate(order)}
    return sorted(order) == list(range(len(order))) and all(
        place_of[earlier] < place_of[later] for earlier, later in flow_edges
    )


@pytest.mark.parametrize("home", HOMES, ids=name_of)
def test_constructions_and_their_moves_are_legal(home: Path) -> None:
    for flow in flows_of(home):
        edges = list(iter_edges(flow))
        for name, order in iter_constructions(flow):
            assert _is_legal(edges, order), name
            for first, stretch in iter_moves(Timeline(flow, order)):
                moved = order[:first] + stretch + order[first + len(stretch) :]
                assert _is_legal(edges, moved), name


@pytest.mark.parametrize("home", HOMES, ids=name_of)
def test_moving_never_raises_the_peak(home: Path) -> None:
    for flow in flows_of(home):
        edges = list(iter_edges(flow))
        for _, order in iter_constructions(flow):
            *others, moved = improve_order(flow, order, MovesLeft(4_000))
            assert peak_of(flow, moved) <= peak_of(flow, order)
            for other in others:
                assert _is_legal(edges, other)
                assert peak_of(flow, other) == peak_of(flow, moved)


def test_a_spent_budget_moves_nothing() -> None:
    flow = flows_of(HOMES[0])[-1]
    order = list(range(len(flow.nodes)))
    assert improve_order(flow, order, MovesLeft(0)) == [order]
