"""Which of the computations inside operations is which.

The dump shows their instructions, but not their names, nor who calls those that only bodies of
fusions call. Names are matched by what the caller demands: the types of the parameters. XLA numbers
values and names computations in the order in which they were made, so of several that fit the first
in the one order is the first in the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.rebuild.listing import natural_key
from hlomem.view.computations import Computation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hlomem.view.computations import CallNest
    from hlomem.view.drafts import Draft
    from hlomem.view.joined import JoinedDump

_ONE_FOR_ALL = ("all-reduce", "reduce-scatter")  # adds whatever number of operands


def name_embedded(
    embedded: list[Computation], drafts: Mapping[str, Draft], known: set[str], joined: JoinedDump
) -> list[Computation]:
    """Name the computations; returns those that only bodies of fusions can call."""
    unclaimed = list(embedded)
    for callee, caller in sorted(_references(drafts, known), key=lambda each: natural_key(each[0])):
        computation = next((each for each in unclaimed if _fits(each, caller, joined)), None)
        if computation is not None:
            computation.name = callee
            unclaimed.remove(computation)
    for number, computation in enumerate(unclaimed):
        computation.name = f"embedded.{number}"
    return unclaimed


def _references(drafts: Mapping[str, Draft], known: set[str]) -> Iterator[tuple[str, Draft]]:
    """Names of computations that are called inside an operation, once each."""
    seen = set(known)
    for draft in drafts.values():
        if draft.line is not None and draft.opcode != "fusion" and not draft.is_async_start:
            for names in draft.line.callees.values():
                for name in names:
                    if name not in seen:
                        seen.add(name)
                        yield name, draft


def _fits(computation: Computation, caller: Draft, joined: JoinedDump) -> bool:
    """Whether a computation takes two of every type in the caller's result, as adders do."""
    assert caller.line is not None
    printed = [joined.printed[name] for name in computation.instructions if name in joined.printed]
    numbered = [line for line in printed if line.number is not None]
    numbered.sort(key=lambda line: line.number or 0)
    taken = [line.shape.element_type for line in numbered]
    if caller.opcode == "map":
        return len(taken) == len(caller.operands)
    wanted = [shape.element_type for _, shape in caller.line.shape.leaves()]
    if caller.opcode.startswith(_ONE_FOR_ALL):
        return taken == wanted[:1] * 2
    return taken in (wanted * 2, [each for each in wanted for _ in range(2)])


def embedded_computations(joined: JoinedDump, nest: CallNest) -> list[Computation]:
    """What runs inside reductions, sorts and the like: no part of the schedule. By ids."""

    def rank(name: str) -> tuple[int, int]:
        """By id; what has none comes right after its operands."""
        own = joined.own_id.get(name)
        if own is not None:
            return own, 0
        last, steps = max(map(rank, nest.drafts[name].operands), default=(-1, 0))
        return last, steps + 1

    members: dict[str, list[str]] = {}
    for name in sorted((name for name in joined.held if name not in joined.time_of), key=rank):
        members.setdefault(nest.families.find(name), []).append(name)
    computations: list[list[str]] = []
    for group in reversed(members.values()):
        # A parameter nobody reads stands alone, before the computation it belongs to.
        if computations and _is_missing_parameter(group, computations[-1], joined):
            computations[-1][:0] = group
        else:
            computations.append(group)
    return [Computation("", group) for group in reversed(computations)]


def _is_missing_parameter(group: list[str], others: list[str], joined: JoinedDump) -> bool:
    """Whether a group is nothing but a parameter with a number no other has."""
    printed = joined.printed
    number = printed[group[0]].number if len(group) == 1 and group[0] in printed else None
    return number is not None and all(
        printed[name].number != number for name in others if name in printed
    )
