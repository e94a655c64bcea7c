"""Values of one family (`hlomem.view.families`) must share one slice."""

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
    for name in joined.printed:
        fusion = program.instruction_by_name.get(name)
        if fusion is None or fusion.opcode != "fusion" or not fusion.called_computations:
            continue
        for output, operand in updated_operands(fusion):
            written = [value for part, value in joined.read_by.get((name, operand), ()) if not part]
            families.join(
                [*written, *joined.values_at.get((name, output), ())], f"updated inside {name}"
            )


def check_aliases(joined: JoinedDump, families: AliasClasses) -> Iterator[Finding]:
    """Every family has one slice."""
    for family in families.members(joined.placed).values():
        counts = Counter([placed.slice for placed in family])
        if len(counts) == 1:
            continue
        usual = max(counts, key=lambda candidate: (counts[candidate], candidate))
        for placed in family:
            if placed.slice != usual:
                values = as_evidence(_neighbour(placed, family), placed)
                yield Finding(
                    "alias/torn",
                    f"{values[0].name} and {values[1].name} must share storage, but do not",
                    values=values,
                    allocations=tuple(dict.fromkeys((usual[0], placed.allocation.index))),
                    evidence=(f"{values[1].name}: {families.reason[placed]}",),
                )


def _neighbour(placed: PlacedValue, family: list[PlacedValue]) -> PlacedValue:
    """The member at another slice that lives closest to `placed`, preferably not an operand."""
    others = [member for member in family if member.slice != placed.slice]
    return min(
        others, key=lambda other: (_gap(placed, other), placed.reads_or_feeds(other), other.id)
    )


def _gap(one: PlacedValue, two: PlacedValue) -> float:
    if one.life is None or two.life is None:
        return math.inf
    first, second = sorted((one.life, two.life), key=lambda life: (life.start, life.end))
    return max(0, second.start - first.end)
