"""Which buffer the search prefers of several that can lie equally low.

In: an instance, and how often each section was hopeless before. Out: the buffers in an order of
preference. No order is good for all: the schedule below goes through several, for few steps at
first, and through orders that put those buffers first that live where the last search failed.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.packer.instance import Instance

KEYS = ("load width area", "width area load", "neighbours width area")
"""Most first, the later words for equals. `load`: of the fullest section of the buffer."""


class Strategy(NamedTuple):
    """One way to search."""

    keys: str
    follows_conflicts: bool
    """Decides next on buffers of the section that failed last, not on the lowest of all."""
    learns: Callable[[Sequence[int]], int] | None = None
    """How a buffer is judged by the conflicts of its sections; None if it is not."""


_FIXED = [Strategy(keys, follows) for keys in KEYS for follows in (False, True)]
_LEARNING = [Strategy(keys, False, judge) for judge in (max, sum) for keys in KEYS[:2]]
_FIXED_STEPS = 5000
_LEARNING_STEPS = 1000
_RESTARTS = 20


def schedule() -> Iterator[tuple[Strategy, int]]:
    """What to try, and for how many steps, without end."""
    for doubling in count():
        for strategy in _FIXED:
            yield strategy, _FIXED_STEPS << doubling
        for _ in range(_RESTARTS):
            for strategy in _LEARNING:
                yield strategy, _LEARNING_STEPS << doubling


def rank(instance: Instance, strategy: Strategy, conflicts: Sequence[int] | None) -> list[int]:
    """The buffers, preferred ones first."""
    keys = [_key(instance, word) for word in strategy.keys.split()]
    ranking = sorted(range(instance.count), key=lambda b: (*(-key(b) for key in keys), b))
    if conflicts is not None and strategy.learns is not None:
        judge = strategy.learns
        ranking.sort(key=lambda b: -judge(_of_sections(instance, conflicts, b)))
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
    """The numbers of the sections a buffer lives through."""
    return [number for first, end in instance.ranges[b] for number in numbers[first:end]]


def remember(before: Sequence[int] | None, conflicts: Sequence[int]) -> list[int]:
    """The conflicts of a search, and half of what was remembered of those before it."""
    total = sum(conflicts) or 1
    shares = [(number << 20) // total for number in conflicts]
    if before is None:
        return shares
    return [old // 2 + share for old, share in zip(before, shares, strict=True)]
