"""Which of the computations inside operations is which.

The dump shows their instructions, but not their names, nor who calls those that only bodies of
fusions call. Names are matched by what the caller demands: the types of the parameters. XLA numbers
values and names computations in the order in which they were made, so of several that fit the first
in the one order is the first in the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import communicates
from hlomem.rebuild.listing import natural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hlomem.rebuild.computations import Computation
    from hlomem.rebuild.instructions import Draft
    from hlomem.view.facts import Facts


def name_embedded(
    embedded: list[Computation], drafts: Mapping[str, Draft], known: set[str], facts: Facts
) -> list[Computation]:
    """Name the computations; returns those that only bodies of fusions can call."""
    unclaimed = list(embedded)
    for callee, caller in sorted(_references(drafts, known), key=lambda each: natural(each[0])):
        computation = next((each for each in unclaimed if _fits(each, caller, facts)), None)
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


def _fits(computation: Computation, caller: Draft, facts: Facts) -> bool:
    """Whether a computation takes two of every type in the caller's result, as adders do."""
    assert caller.line is not None
    lines = [facts.lines[name] for name in computation.instructions if name in facts.lines]
    numbered = [line for line in lines if line.number is not None]
    numbered.sort(key=lambda line: line.number or 0)
    taken = [line.shape.element_type for line in numbered]
    if caller.opcode == "map":
        return len(taken) == len(caller.operands)
    wanted = [shape.element_type for _, shape in caller.line.shape.leaves()]
    if communicates(caller.opcode):  # it adds whatever number of operands
        return taken == wanted[:1] * 2
    return taken in (wanted * 2, [each for each in wanted for _ in range(2)])
