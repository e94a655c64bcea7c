"""Values as findings show them: their place, their life, where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.check.findings import Finding, Involved
from hlomem.view.joined import display_name, source_of

if TYPE_CHECKING:
    from hlomem.view.joined import Placed


def involve(*values: Placed) -> tuple[Involved, ...]:
    """Values as a finding shows them."""
    return tuple(_involve(value) for value in values)


def about(placed: Placed, rule: str, problem: str, *evidence: str) -> Finding:
    """What is wrong with one value in its place."""
    values = involve(placed)
    return Finding(
        rule=rule,
        message=f"{values[0].name} {problem}",
        values=values,
        allocations=(placed.allocation.index,),
        evidence=evidence,
    )


def _involve(placed: Placed) -> Involved:
    life = placed.life
    return Involved(
        id=placed.id,
        name=display_name(placed.value),
        allocation=placed.allocation.index,
        start_byte=placed.start,
        end_byte=placed.end,
        live_from=life.start if life else None,
        live_to=life.end if life else None,
        source=source_of(placed.used.instruction) if placed.used else "",
    )
