"""A timeline counts a stretch as the model counts the whole order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hlomem.opt.orders.model import Timeline, levels_of
from tests.opt.orders.programs import HOMES, flows_of, name_of, random_order


@pytest.mark.parametrize("home", HOMES, ids=name_of)
def test_a_stretch_is_counted_as_the_whole_order_is(home: Path) -> None:
    chance = random.Random(home.name)  # noqa: S311 - not for secrets
    for flow in flows_of(home):
        line = Timeline(flow, random_order(flow, 1))
        rank_of = {node: rank for rank, node in enumerate(random_order(flow, 2))}
        for _ in range(4):
            first = chance.randrange(len(flow.nodes))
            end = chance.randrange(first, len(flow.nodes)) + 1
            stretch = sorted(line.order[first:end], key=rank_of.__getitem__)
            line.put(first, stretch, line.levels_with(first, stretch))
            assert line.levels == levels_of(flow, line.order)
            assert [line.order[place] for place in line.place_of] == list(range(len(flow.nodes)))
