"""Values that must share one place do.

In: a dump and the families found in it (`hlomem.view.families`), to which a module adds what
fusions update in place. Out: the values that lie elsewhere than their family.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from hlomem.check.evidence import as_evidence
from hlomem.check.findings import Finding
from hlomem.check.fusions import updated_operands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.check.program import TracedProgram
    from hlomem.view.families import AliasClasses
    from hlomem.view.joined import JoinedDump, PlacedValue


def join_fusions(joined: JoinedDump, program: TracedProgram, families: AliasClasses) -> None:
    """An update that is all a fusion's output is made of is in place, as it is outside."""
    for name in joined.printed:
        fusion = program.instruction_by_name.get(name)
        if fusion is None or fusion.opcode != "fusion" or not fusion.called_computations:
            continue
        for output, operand in updated_operands(fusion):
            written = [each for index, each in joined.read_by.get((name, operand), ()) if not index]
            families.join(
                [*written, *joined.values_at.get((name, output), ())],
                f"updated inside {name}",
            )


def check_aliases(joined: JoinedDump, families: AliasClasses) -> Iterator[Finding]:
    """Every family lies at one place."""
    for family in families.members(joined.placed).values():
        counts = Counter([placed.slice for placed in family])
        if len(counts) == 1:
            continue
        usual = max(counts, key=lambda each: (counts[each], each))
        for placed in family:
            if placed.slice != usual:
                values = as_evidence(_neighbour(placed, family), placed)
                yield Finding(
                    rule="alias/torn",
                    message=f"{values[0].name} and {values[1].name} must share storage, but do not",
                    values=values,
                    allocations=tuple(dict.fromkeys((usual[0], placed.allocation.index))),
                    evidence=(f"{values[1].name}: {families.reason[placed]}",),
                )


def _neighbour(placed: PlacedValue, family: list[PlacedValue]) -> PlacedValue:
    """The value of a family, at another place, that lives next to `placed`.

    Of an operand and a version of the same value, the version: an operand need not share.
    """
    others = [each for each in family if each.slice != placed.slice]
    return min(others, key=lambda each: (_gap(placed, each), _is_read(placed, each), each.id))


def _is_read(one: PlacedValue, two: PlacedValue) -> bool:
    """Whether one of two values is an operand of the other."""
    return bool(one.operand_numbers(two.value.name) or two.operand_numbers(one.value.name))


def _gap(one: PlacedValue, two: PlacedValue) -> float:
    """How many moments lie between the lives of two values."""
    if one.life is None or two.life is None:
        return math.inf
    first, second = sorted((one.life, two.life), key=lambda each: (each.start, each.end))
    return max(0, second.start - first.end)
