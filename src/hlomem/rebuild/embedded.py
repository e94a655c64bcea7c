"""Which of the computations inside operations is which.

The dump shows their instructions, but not their names, nor who calls those that only bodies of
fusions call. Names are matched by what the caller demands: the types of the parameters. XLA numbers
values and names computations in the order in which they were made, so of several that fit the first
in the one order is the first in the other. The rest go to the fusions that come from the same
operation of the program, or to any.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hlomem.rebuild.computations import Computation
    from hlomem.rebuild.facts import Facts
    from hlomem.rebuild.instructions import Draft

_ONE_FOR_ALL = ("all-reduce", "reduce-scatter")  # adds whatever number of operands
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')


def name_embedded(
    embedded: list[Computation], drafts: Mapping[str, Draft], known: set[str], facts: Facts
) -> dict[str, list[Computation]]:
    """Name the computations, and say which a fusion's body calls, by the fusion's name."""
    unclaimed = list(embedded)
    for callee, caller in sorted(_references(drafts, known), key=lambda each: _natural(each[0])):
        fitting = (each for each in unclaimed if _fits(each, caller, facts))
        computation = next(fitting, None)
        if computation is not None:
            computation.name = callee
            unclaimed.remove(computation)
    in_fusions: dict[str, list[Computation]] = {}
    fusions = [
        draft
        for draft in drafts.values()
        if draft.opcode == "fusion" and draft.name in facts.time_of
    ]
    for number, computation in enumerate(unclaimed):
        computation.name = f"embedded.{number}"
        if fusions:
            fusion = max(fusions, key=lambda each: _is_related(computation, each, facts))
            in_fusions.setdefault(fusion.name, []).append(computation)
    return in_fusions


def _references(drafts: Mapping[str, Draft], known: set[str]) -> Iterator[tuple[str, Draft]]:
    """Names of computations that are called inside an operation, once each."""
    seen = set(known)
    for draft in drafts.values():
        if draft.line is not None and draft.opcode != "fusion":
            for names in draft.line.callees.values():
                for name in names:
                    if name not in seen:
                        seen.add(name)
                        yield name, draft


def _natural(name: str) -> list[tuple[int, str]]:
    """Numbers in names count as numbers."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]


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
    if caller.opcode.startswith(_ONE_FOR_ALL):
        return taken == wanted[:1] * 2
    return taken in (wanted * 2, [each for each in wanted for _ in range(2)])


def _is_related(computation: Computation, fusion: Draft, facts: Facts) -> bool:
    """Whether both come from one operation of the program."""
    assert fusion.line is not None
    ours = facts.lines.get(computation.instructions[-1])
    name = _OP_NAME.search(ours.text) if ours is not None else None
    return name is not None and name[0] in fusion.line.text
