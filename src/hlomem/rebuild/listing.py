"""In which order XLA lists computations: what decides between equal buffers, and no text shows.

Up to jaxlib 0.5.0 that is the order of ids. Since then it is the order in which instructions were
made that call them, of which a dump shows two things: ids, which follow the making of computations;
and the order of thread-local allocations, of which each value has one of its own.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.dump.records import Allocation
    from hlomem.rebuild.computations import Computation
    from hlomem.rebuild.facts import Facts


def list_embedded(embedded: list[Computation], facts: Facts) -> list[Computation]:
    """Computations inside operations in XLA's order, as their allocations tell; callees first."""
    home_of = {name: each for each in embedded for name in each.instructions}
    by_size: dict[int, list[Computation]] = {}
    for allocation in _as_made(facts, home_of):
        by_size.setdefault(allocation.size, []).append(home_of[allocation.values[0].name])
    sorter: TopologicalSorter[Computation] = TopologicalSorter(dict.fromkeys(embedded, ()))
    for homes in by_size.values():
        # One of them may have changed places with a temporary: the last of each counts.
        last = {home: number for number, home in enumerate(homes)}
        order = sorted(last, key=last.__getitem__)
        for caller, callee in pairwise(order):
            sorter.add(caller, callee)
    try:
        return list(sorter.static_order())
    except CycleError:
        return embedded


def _as_made(facts: Facts, home_of: dict[str, Computation]) -> list[Allocation]:
    """Allocations of values inside operations as they were made.

    They come last, until temporaries change places with the last of all (`std::partition`).
    """
    allocations = facts.assignment.allocations
    kept = [each for each in allocations if not each.is_preallocated_temp]
    ours = [bool(each.values) and each.values[0].name in home_of for each in kept]
    first = len(ours)
    while first and ours[first - 1] and _is_in_order(kept, first):
        first -= 1
    moved = [each for each, is_ours in zip(kept[:first], ours, strict=False) if is_ours]
    return [*kept[first:], *reversed(moved)]


def _is_in_order(kept: list[Allocation], first: int) -> bool:
    """Whether what stands before is as large as what follows: what changed places need not be."""
    return first == len(kept) or kept[first - 1].size >= kept[first].size
