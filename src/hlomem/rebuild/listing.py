"""XLA's order of computations, which breaks ties: of ids until jaxlib 0.5.0, then of calls."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING

from hlomem.history.names import CLONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.dump.records import AssignedValue
    from hlomem.machines.options import Options
    from hlomem.view.computations import Computation
    from hlomem.view.drafts import Draft
    from hlomem.view.joined import JoinedDump


def lists_by_id(options: Options) -> bool:
    return not (options.sorts_computations_incrementally or options.sorts_computations_by_content)


def age(caller: Draft) -> tuple[bool, bool, list[tuple[int, str]]]:
    """The creation order of callers: the program's own loops, then rewritten ones, then calls."""
    is_rewritten = any(CLONE in callee for callee in caller.callees)
    return caller.opcode == "call", is_rewritten, natural_key(caller.name)


def natural_key(name: str) -> list[tuple[int, str]]:
    """A sort key for names that compares numbers numerically."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]


def list_embedded(embedded: list[Computation], joined: JoinedDump) -> list[Computation]:
    """Computations inside operations in the order of their allocations, callees first."""
    home_of = {name: computation for computation in embedded for name in computation.instructions}
    sorter: TopologicalSorter[Computation] = TopologicalSorter(dict.fromkeys(embedded, ()))
    for values in _by_size(_as_made(joined, home_of)).values():
        order = list(dict.fromkeys([home_of[value.name] for value in values]))
        for caller, callee in pairwise(order):
            sorter.add(caller, callee)
    try:
        return list(sorter.static_order())
    except CycleError:
        return embedded


def _as_made(joined: JoinedDump, home_of: Mapping[str, Computation]) -> list[AssignedValue]:
    """The values inside operations in the order of assignment.

    They are assigned last, but `std::partition` swaps temporaries with an unknown number of the
    last. The original order is by decreasing size, then by computation and id.
    """
    kept = [allocation for allocation in joined.allocations if not allocation.is_preallocated_temp]
    values = [
        allocation.values[0]
        for allocation in kept
        if allocation.values and allocation.values[0].name in home_of
    ]
    for moved in range(len(values)):
        order = [*values[moved:], *reversed(values[:moved])]
        if _is_possible(order, home_of):
            return order
    return values


def _is_possible(order: list[AssignedValue], home_of: Mapping[str, Computation]) -> bool:
    if any(one.size < other.size for one, other in pairwise(order)):
        return False
    for values in _by_size(order).values():
        ids = [(home_of[value.name], value.id) for value in values]
        changes = sum(one is not other for (one, _), (other, _) in pairwise(ids))
        if changes >= len({home for home, _ in ids}):
            return False
        if any(one is other and first > second for (one, first), (other, second) in pairwise(ids)):
            return False
    return True


def _by_size(values: list[AssignedValue]) -> dict[int, list[AssignedValue]]:
    by_size: dict[int, list[AssignedValue]] = {}
    for value in values:
        by_size.setdefault(value.size, []).append(value)
    return by_size
