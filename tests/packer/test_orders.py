"""Preferences of the search: which buffers come first, and what is learned from failures."""

from __future__ import annotations

from itertools import islice

from hlomem.packer.decide import KEYS, Strategy, decide, rank, remember, schedule
from hlomem.packer.instance import Instance
from tests.packer.problems import GAP

INSTANCE = Instance(GAP)


def _ids(ranking: list[int]) -> str:
    return "".join(str(GAP[number].id) for number in ranking)


def test_the_attempts_go_through_all_orders_and_then_take_twice_as_long() -> None:
    attempts = list(islice(schedule(), 173))
    fixed = [strategy for strategy, _ in attempts if strategy.learns is None]
    assert {strategy.keys for strategy in fixed} == set(KEYS)
    learning = [steps for strategy, steps in attempts if strategy.learns is not None]
    assert learning[:80] == [learning[0]] * 80
    assert learning[80] == 2 * learning[0]
    assert attempts[86] == (attempts[0][0], 2 * attempts[0][1])


def test_the_widest_the_fullest_and_the_most_crowded_come_first() -> None:
    assert _ids(rank(INSTANCE, Strategy("width area load", False), None))[:2] == "ac"
    assert set(_ids(rank(INSTANCE, Strategy("load width area", False), None))[:2]) == {"a", "c"}
    most = max(len(others) for others in INSTANCE.neighbours)
    first = rank(INSTANCE, Strategy("neighbours width area", False), None)[0]
    assert len(INSTANCE.neighbours[first]) == most


def test_buffers_of_sections_that_failed_come_first() -> None:
    lonely = next(number for number, buffer in enumerate(GAP) if buffer.id == "b")
    [(section, _)] = INSTANCE.ranges[lonely]
    conflicts = [1000 * (number == section) for number in range(INSTANCE.section_count)]
    ranking = rank(INSTANCE, Strategy(KEYS[0], False, max), conflicts)
    alive = {
        number
        for number, ranges in enumerate(INSTANCE.ranges)
        if any(first <= section < end for first, end in ranges)
    }
    assert set(ranking[: len(alive)]) == alive


def test_of_older_failures_half_is_remembered() -> None:
    first = remember(None, [3, 1])
    assert [share / sum(first) for share in first] == [0.75, 0.25]
    assert remember(first, [0, 0]) == [share // 2 for share in first]


def test_less_than_what_is_alive_at_once_does_not_fit() -> None:
    assert decide(INSTANCE, INSTANCE.lower_bound - 1, 1000).outcome == "does not fit"
