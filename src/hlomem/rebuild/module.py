"""A dump → the module it is of: values → operands → instructions → computations → HLO text.

In: a dump. Out: a module that the planner takes, and notes about what the dump does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hlomem import hlo
from hlomem.rebuild.computations import (
    Computation,
    embedded_computations,
    unflatten,
    unite_entry_parameters,
    unite_stretches,
)
from hlomem.rebuild.facts import Facts, read_facts
from hlomem.rebuild.fusions import find_sharing, write_body
from hlomem.rebuild.instructions import Draft, Shapes, draft_instructions
from hlomem.rebuild.operands import Families, find_operands
from hlomem.rebuild.trace import take_names
from hlomem.rebuild.writer import ModuleWriter

if TYPE_CHECKING:
    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule
    from hlomem.hlo.shape import Shape


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """A program made of a dump."""

    module: HloModule
    notes: tuple[str, ...]
    """What the dump does not tell, and what was assumed."""


def rebuild(dump: Dump, *, is_listed_by_id: bool) -> Rebuilt:
    """The program a dump is of, as far as it tells."""
    facts = read_facts(dump)
    notes: list[str] = []
    text = write_module(facts, notes, is_listed_by_id=is_listed_by_id)
    return Rebuilt(hlo.parse(text), tuple(notes))


def write_module(facts: Facts, notes: list[str], *, is_listed_by_id: bool) -> str:
    """The program as HLO text."""
    families = Families()
    operands = find_operands(facts, families)
    drafts = draft_instructions(facts, operands)
    unite_stretches(facts, families)
    unite_entry_parameters(facts, families)
    parameters = {draft.name for draft in drafts.values() if draft.opcode == "parameter"}
    callees = {draft.name: draft.callees for draft in drafts.values() if draft.callees}
    in_flow = unflatten(facts, families, callees, parameters, _entry_name(facts))
    take_names(facts, in_flow, drafts)
    embedded = embedded_computations(facts, families, operands)
    return ModuleWriter(facts, drafts, in_flow, embedded, notes).text(
        is_listed_by_id=is_listed_by_id
    )


def _entry_name(facts: Facts) -> str:
    """The root of the stack trace; any name where there is none."""
    peak = facts.live_ranges.peak
    if peak is not None and peak.stack_trace is not None and peak.stack_trace.nodes:
        return peak.stack_trace.nodes[0].name
    return "main"
