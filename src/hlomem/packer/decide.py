"""Does it fit? Exact search in many orders.

In: an instance, a capacity, a number of steps. Out: whether the buffers fit, with offsets, or that
no packing is that small, or neither. Every search is exhaustive, so that the first one that ends
has the answer, whichever it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.packer.orders import rank, remember, schedule
from hlomem.packer.search import Search, decision_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.packer.instance import Instance
    from hlomem.packer.orders import Strategy
    from hlomem.packer.search import Outcome


class Decision(NamedTuple):
    """An answer and what it took."""

    outcome: Outcome
    offsets: Sequence[int]
    """In units, by number; complete if the outcome is "fits"."""
    steps: int
    strategy: str = ""


def decide(instance: Instance, capacity: int, max_steps: int) -> Decision:
    """Searches until there is an answer or the steps are used up."""
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
    """Steps without which a search cannot find anything: one decision on each buffer."""
    return sum(
        decision_steps(unplaced, instance.section_count)
        for unplaced in range(1, instance.count + 1)
    )
