"""A dump → the module it is of: values → operands → instructions → computations → HLO text.

In: the facts of a dump. Out: a module that the planner takes, with a body for every fusion, and
notes about what the dump does not tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.rebuild.computations import (
    embedded_computations,
    unflatten,
    unite_entry_parameters,
    unite_stretches,
)
from hlomem.rebuild.instructions import draft_instructions
from hlomem.rebuild.operands import Families, find_operands
from hlomem.rebuild.trace import take_names
from hlomem.rebuild.writer import ModuleWriter

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.options import Options
    from hlomem.view.facts import Facts


class Rebuilt(NamedTuple):
    """A program made of a dump."""

    module: HloModule
    notes: tuple[str, ...]
    """What the dump does not tell, and what was assumed."""


def rebuild(facts: Facts, options: Options) -> Rebuilt:
    """The program a dump is of, as far as it tells; `options` are those of its release."""
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
    writer = ModuleWriter(facts, drafts, in_flow, embedded)
    text = writer.text(options)
    return Rebuilt(hlo.parse(text, "rebuilt program"), tuple(writer.notes()))


def _entry_name(facts: Facts) -> str:
    """The root of the stack trace; any name where there is none."""
    peak = facts.live_ranges.peak
    if peak is not None and peak.stack_trace is not None and peak.stack_trace.nodes:
        return peak.stack_trace.nodes[0].name
    return "main"
