"""Families of values that share one slice: HloBuffers, found in a dump (`HloAliasAnalysis`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.disjoint_sets import DisjointSets
from hlomem.hlo.opcodes import Opcode
from hlomem.view.instruction_line import OPERAND_PAIRS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.view.control_flow import Loop, Structure
    from hlomem.view.joined import JoinedDump, PlacedValue

UPDATES = frozenset[Opcode]({"dynamic-update-slice", "scatter"})
"""Opcodes that XLA always plans in place (`AliasInfo::GetInPlaceInputOutputPairs`)."""


class AliasClasses:
    """Families of values; `reason` tells why a value was joined to another."""

    def __init__(self) -> None:
        self._sets = DisjointSets["PlacedValue"]()
        self.reason: dict[PlacedValue, str] = {}

    def head(self, placed: PlacedValue) -> PlacedValue:
        return self._sets.find(placed)

    def join(self, values: Iterable[PlacedValue], reason: str) -> None:
        first: PlacedValue | None = None
        for placed in values:
            self.reason.setdefault(placed, reason)
            first = first or placed
            self._sets.unite(placed, first)

    def are_together(self, one: PlacedValue, two: PlacedValue) -> bool:
        return self._sets.are_together(one, two)

    def members(self, values: Iterable[PlacedValue]) -> dict[PlacedValue, list[PlacedValue]]:
        found = self._sets.groups(placed for placed in values if placed in self.reason)
        return {head: family for head, family in found.items() if len(family) > 1}


def find_alias_classes(joined: JoinedDump, structure: Structure) -> AliasClasses:
    families = AliasClasses()
    for loop in structure.loops:
        _join_loop(joined, loop, families)
    for conditional in structure.conditionals:
        name = conditional.instruction
        roots = [branch.root for branch in conditional.branches if branch.root is not None]
        for index in joined.indices_at.get(name, ()):
            found = [joined.values_at.get((root, index), ()) for root in (name, *roots)]
            values = [placed for values in found for placed in values]
            families.join(values, f"result of the branches of {name}")
    for name, printed in joined.printed.items():
        if printed.opcode in UPDATES or OPERAND_PAIRS in printed.text:
            _join_in_place(joined, name, families)
    return families


def _join_loop(joined: JoinedDump, loop: Loop, families: AliasClasses) -> None:
    name = loop.instruction
    carriers = [name, loop.condition_parameter, loop.body_parameter]
    if loop.body_root is not None:
        carriers.append(loop.body_root)
    read = joined.read_by.get((name, 0), ())
    for index in joined.indices_at.get(name, ()):
        found = [joined.values_at.get((carrier, index), ()) for carrier in carriers]
        values = [placed for values in found for placed in values]
        values += [placed for at, placed in read if at == index]
        families.join(values, f"carried by {name}")


def _join_in_place(joined: JoinedDump, name: str, families: AliasClasses) -> None:
    printed = joined.printed[name]
    for output, operand, inside in printed.operand_pairs:
        read = joined.read_by.get((name, operand), ())
        values = [placed for index, placed in read if index == inside]
        families.join(
            [*values, *joined.values_at.get((name, output), ())],
            f"{name} writes into its operand {operand}",
        )
    if printed.opcode in UPDATES and not printed.shape_text.startswith("("):
        written = [placed for index, placed in joined.read_by.get((name, 0), ()) if not index]
        families.join([*written, *joined.values_at.get((name, ()), ())], f"updated by {name}")
