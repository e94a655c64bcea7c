"""Which values must share one place: what XLA calls an HloBuffer.

In: a plan and its control flow. Out: families of values. What a loop carries is one value in many
versions (`HloAliasAnalysis: ComputeWhileAliasedBuffers`): what goes in, what condition and body
get, what the body returns, what comes out. The results of a conditional's branches are its result;
an output that is declared to alias an operand is that operand.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from hlomem.check.evidence import involve
from hlomem.check.findings import Finding
from hlomem.check.fusions import updated_operands
from hlomem.check.opcodes import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.check.program import Program
    from hlomem.view.control_flow import Loop, Structure
    from hlomem.view.joined import Placed, Plan


class Families:
    """Values joined into families; `reason` says why a value was joined to another."""

    def __init__(self) -> None:
        self._parent: dict[Placed, Placed] = {}
        self.reason: dict[Placed, str] = {}

    def head(self, placed: Placed) -> Placed:
        """The value that stands for the family."""
        path = []
        while (parent := self._parent.get(placed)) is not None:
            path.append(placed)
            placed = parent
        for each in path:
            self._parent[each] = placed
        return placed

    def join(self, values: Iterable[Placed], reason: str) -> None:
        """Makes one family of the families of these values."""
        first: Placed | None = None
        for placed in values:
            self.reason.setdefault(placed, reason)
            head = self.head(placed)
            if first is None:
                first = head
            elif head is not first:
                self._parent[head] = first

    def are_together(self, one: Placed, two: Placed) -> bool:
        """Whether two values must share storage."""
        return self.head(one) is self.head(two)

    def members(self, values: Iterable[Placed]) -> dict[Placed, list[Placed]]:
        """The values of each family, those of one value left out."""
        found: dict[Placed, list[Placed]] = {}
        for placed in values:
            if placed in self.reason:
                found.setdefault(self.head(placed), []).append(placed)
        return {head: family for head, family in found.items() if len(family) > 1}


def find_families(plan: Plan, structure: Structure) -> Families:
    """The families a dump shows."""
    families = Families()
    for loop in structure.loops:
        _join_loop(plan, loop, families)
    for conditional in structure.conditionals:
        name = conditional.instruction
        for index in plan.indices_at.get(name, ()):
            roots = [branch.root for branch in conditional.branches if branch.root is not None]
            values = [
                each for root in (name, *roots) for each in plan.values_at.get((root, index), ())
            ]
            families.join(values, f"result of the branches of {name}")
    for name, text in plan.text_of.items():
        for output, operand, inside in text.operand_pairs:
            read = plan.read_by.get((name, operand), ())
            values = [each for index, each in read if index == inside]
            families.join(
                [*values, *plan.values_at.get((name, output), ())],
                f"{name} writes into its operand {operand}",
            )
        if text.opcode in UPDATES and not text.shape.startswith("("):
            written = [each for index, each in plan.read_by.get((name, 0), ()) if not index]
            families.join([*written, *plan.values_at.get((name, ()), ())], f"updated by {name}")
    return families


def join_fusions(plan: Plan, program: Program, families: Families) -> None:
    """An update that is all a fusion's output is made of is in place, as it is outside."""
    for name in plan.text_of:
        fusion = program.instruction_by_name.get(name)
        if fusion is None or fusion.opcode != "fusion" or not fusion.called_computations:
            continue
        for output, operand in updated_operands(fusion):
            written = [each for index, each in plan.read_by.get((name, operand), ()) if not index]
            families.join(
                [*written, *plan.values_at.get((name, output), ())],
                f"updated inside {name}",
            )


def _join_loop(plan: Plan, loop: Loop, families: Families) -> None:
    name = loop.instruction
    places = [name, loop.condition_parameter, loop.body_parameter]
    if loop.body_root is not None:
        places.append(loop.body_root)
    read = plan.read_by.get((name, 0), ())
    for index in plan.indices_at.get(name, ()):
        values = [each for place in places for each in plan.values_at.get((place, index), ())]
        values += [each for at, each in read if at == index]
        families.join(values, f"carried by {name}")


def check_aliases(plan: Plan, families: Families) -> Iterator[Finding]:
    """Every family lies at one place."""
    for family in families.members(plan.placed).values():
        counts = Counter([placed.slice for placed in family])
        if len(counts) == 1:
            continue
        usual = max(counts, key=lambda each: (counts[each], each))
        for placed in family:
            if placed.slice != usual:
                values = involve(_neighbour(placed, family), placed)
                yield Finding(
                    rule="alias/torn",
                    message=f"{values[0].name} and {values[1].name} must share storage, but do not",
                    values=values,
                    allocations=tuple(dict.fromkeys((usual[0], placed.allocation.index))),
                    evidence=(f"{values[1].name}: {families.reason[placed]}",),
                )


def _neighbour(placed: Placed, family: list[Placed]) -> Placed:
    """The value of a family, at another place, that lives next to `placed`.

    Of an operand and a version of the same value, the version: an operand need not share.
    """
    others = [each for each in family if each.slice != placed.slice]
    return min(others, key=lambda each: (_gap(placed, each), _is_read(placed, each), each.id))


def _is_read(one: Placed, two: Placed) -> bool:
    """Whether one of two values is an operand of the other."""
    return bool(one.operand_numbers(two.value.name) or two.operand_numbers(one.value.name))


def _gap(one: Placed, two: Placed) -> float:
    """How many moments lie between the lives of two values."""
    if one.life is None or two.life is None:
        return math.inf
    first, second = sorted((one.life, two.life), key=lambda each: (each.start, each.end))
    return max(0, second.start - first.end)
