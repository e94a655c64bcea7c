"""Values as evidence of findings: slice, live range, source."""

from __future__ import annotations

from hlomem.check.findings import Finding, ValueEvidence
from hlomem.hlo.text.attributes import read_metadata
from hlomem.view.instruction_line import source_of
from hlomem.view.joined import PlacedValue, display_name


def as_evidence(*values: PlacedValue) -> tuple[ValueEvidence, ...]:
    return tuple(_as_evidence(value) for value in values)


def value_finding(placed: PlacedValue, rule: str, problem: str, *evidence: str) -> Finding:
    values = as_evidence(placed)
    return Finding(
        rule,
        f"{values[0].name} {problem}",
        values=values,
        allocations=(placed.allocation.index,),
        evidence=evidence,
    )


def _as_evidence(placed: PlacedValue) -> ValueEvidence:
    life = placed.life
    return ValueEvidence(
        id=placed.id,
        name=display_name(placed.value),
        allocation=placed.allocation.index,
        start_byte=placed.start,
        end_byte=placed.end,
        live_from=life.start if life else None,
        live_to=life.end if life else None,
        source=_source(placed.used.instruction) if placed.used else "",
    )


def _source(instruction: str) -> str:
    """The file and line, or the operation's name, of a printed instruction."""
    metadata = read_metadata(instruction)
    return source_of(metadata) or metadata.op_name
