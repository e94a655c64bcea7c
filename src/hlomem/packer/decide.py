"""Deciding whether buffers fit, by exhaustive searches with several orders of preference.

No order is good for all problems: the schedule tries several, with few steps at first, and orders
that prefer buffers where earlier searches failed. The first search that ends has the answer.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from hlomem.packer.search import Outcome, Search, decision_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.packer.instance import Instance


class Decision(NamedTuple):
    outcome: Outcome
    offsets: Sequence[int]
    """In units, by number; complete if the outcome is "fits"."""
    steps: int
    strategy: str = ""


def decide(instance: Instance, capacity: int, max_steps: int) -> Decision:
    """Search until there is an answer or the steps are exhausted."""
    if instance.lower_bound > capacity:
        return Decision("does not fit", (), 0)
    if _first_descent(instance) > max_steps:
        return Decision("unknown", (), 0)
    conflicts: dict[Strategy, list[int]] = {}
    steps = 0
    for strategy, allowed in schedule():
        ranking = rank(instance, strategy, conflicts.get(strategy))
        search = Search(instance, capacity, ranking, strategy.follows_conflicts)
        outcome = search.run(min(allowed, max_steps - steps))
        steps += search.steps
        if outcome != "unknown":
            return Decision(outcome, search.offsets, steps, strategy.keys)
        if steps >= max_steps:
            break
        conflicts[strategy] = remember(conflicts.get(strategy), search.conflicts)
    return Decision("unknown", (), max_steps)


def _first_descent(instance: Instance) -> int:
    """The least steps to find anything: one decision on each buffer."""
    return sum(
        decision_steps(unplaced, instance.section_count)
        for unplaced in range(1, instance.count + 1)
    )


# Orders of preference.

KEYS = ("load width area", "width area load", "neighbours width area")
"""In descending order, later words break ties. `load` is that of the fullest section."""


class Strategy(NamedTuple):
    keys: str
    follows_conflicts: bool
    """Whether buffers of the section that failed last are decided next, not the lowest of all."""
    learns: Callable[[Sequence[int]], int] | None = None
    """Combines the conflicts of a buffer's sections, which then take precedence."""


_FIXED = [Strategy(keys, follows) for keys in KEYS for follows in (False, True)]
_LEARNING = [Strategy(keys, False, learn) for learn in (max, sum) for keys in KEYS[:2]]
_FIXED_STEPS = 5000
_LEARNING_STEPS = 1000
_RESTARTS = 20


def schedule() -> Iterator[tuple[Strategy, int]]:
    """An endless series of strategies, each with its number of steps."""
    for doubling in count():
        for strategy in _FIXED:
            yield strategy, _FIXED_STEPS << doubling
        for _ in range(_RESTARTS):
            for strategy in _LEARNING:
                yield strategy, _LEARNING_STEPS << doubling


def rank(instance: Instance, strategy: Strategy, conflicts: Sequence[int] | None) -> list[int]:
    keys = [_key(instance, word) for word in strategy.keys.split()]
    ranking = sorted(range(instance.count), key=lambda b: (*(-key(b) for key in keys), b))
    if conflicts is not None and strategy.learns is not None:
        learn = strategy.learns
        ranking.sort(key=lambda b: -learn(_of_sections(instance, conflicts, b)))
    return ranking


def _key(instance: Instance, word: str) -> Callable[[int], int]:
    match word:
        case "load":
            return lambda b: max(_of_sections(instance, instance.loads, b))
        case "width":
            return instance.duration
        case "area":
            return lambda b: instance.size[b] * instance.duration(b)
        case _:
            return lambda b: len(instance.neighbours[b])


def _of_sections(instance: Instance, numbers: Sequence[int], b: int) -> list[int]:
    """The numbers of a buffer's sections."""
    return [number for first, end in instance.ranges[b] for number in numbers[first:end]]


def remember(before: Sequence[int] | None, conflicts: Sequence[int]) -> list[int]:
    """The shares of conflicts, and half of those remembered before."""
    total = sum(conflicts) or 1
    shares = [(number << 20) // total for number in conflicts]
    if before is None:
        return shares
    return [old // 2 + share for old, share in zip(before, shares, strict=True)]
