"""The order in which XLA lists computations, which decides between equal buffers; no text shows it.

Up to jaxlib 0.5.0 that is the order of ids. Since then it is the order in which the instructions
were made that call them. Of those in the schedule the names tell; of those in bodies of fusions
nothing does but the order of thread-local allocations, of which each value has one of its own.
"""

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
    """Whether the order of computations is that of the ids in them."""
    return not (options.sorts_computations_incrementally or options.sorts_computations_by_content)


def age(caller: Draft) -> tuple[bool, bool, list[tuple[int, str]]]:
    """The age of a caller: the program's own loops, then rewritten ones, then calls.

    Passes number the instructions they make; those that make calls are the last.
    """
    is_rewritten = any(CLONE in callee for callee in caller.callees)
    return caller.opcode == "call", is_rewritten, natural_key(caller.name)


def natural_key(name: str) -> list[tuple[int, str]]:
    """A key to sort names by in which numbers count as numbers."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]


def list_embedded(embedded: list[Computation], joined: JoinedDump) -> list[Computation]:
    """Computations inside operations in XLA's order, as their allocations tell; callees first."""
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
    """The values inside operations in the order in which they got their allocations.

    These are made last, until temporaries change places with the last of all (`std::partition`).
    How many did is unknown; but large values came first, and of one size those of a computation
    were together, by id.
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
