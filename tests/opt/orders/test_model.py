"""A timeline counts a stretch as the model counts the whole order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hlomem.opt.orders.model import Timeline, levels_of
from tests.opt.orders.programs import CPU, HOMES, flows_of, name_of, random_order


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
            _check_limit(line, first, stretch)
            line.put(first, stretch, line.levels_with(first, stretch))
            assert line.levels == levels_of(flow, line.order)
            assert [line.order[place] for place in line.place_of] == list(range(len(flow.nodes)))


def _check_limit(line: Timeline, first: int, stretch: list[int]) -> None:
    """With a limit the count ends with the first level above it, if any is."""
    whole = line.levels_with(first, stretch)
    for most in (max(whole), max(whole) - 1, whole[0]):
        cut = line.levels_with(first, stretch, most)
        assert cut == whole[: len(cut)]
        assert cut == whole or (cut[-1] > most and max(cut[:-1], default=most) <= most)


def test_a_copy_of_a_timeline_is_changed_on_its_own() -> None:
    flow = flows_of(CPU / "g_cholesky_solve")[-1]
    line = Timeline(flow, range(len(flow.nodes)))
    other, kept = line.copy(), (line.order.copy(), line.levels.copy(), line.place_of.copy())
    stretch = random_order(flow, 1)
    other.put(0, stretch, other.levels_with(0, stretch))
    assert other.order == list(stretch) != line.order
    assert (line.order, line.levels, line.place_of) == kept
