"""A dump → the module it is of: values → operands → instructions → computations → HLO text.

In: a joined dump. Out: a module that the planner takes, with a body for every fusion, and
notes about what the dump does not tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.base.disjoint_sets import DisjointSets
from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.rebuild.computations import (
    embedded_computations,
    unflatten,
    unite_entry_parameters,
    unite_stretches,
)
from hlomem.rebuild.instructions import draft_instructions
from hlomem.rebuild.operands import find_operands
from hlomem.rebuild.trace import take_names
from hlomem.rebuild.writer import ModuleWriter
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.options import Options
    from hlomem.view.joined import JoinedDump


class Rebuilt(NamedTuple):
    """A program made of a dump."""

    module: HloModule
    notes: tuple[str, ...]
    """What the dump does not tell, and what was assumed."""


def require_parts(joined: JoinedDump) -> None:
    """Raises `InputError` where a dump lacks a part, or a line of it is no instruction's."""
    dump = joined.dump
    if dump.assignment is None or dump.values is None or dump.live_ranges is None:
        problem = "needs allocations, values and live ranges to plan again"
        raise InputError(f"{visible(dump.name)}: {problem}")
    for name, text in joined.text_of.items():
        if (
            name not in joined.printed
            or parse_shape_or_none(joined.printed[name].shape_text) is None
        ):
            raise InputError(f"not an instruction: `{visible(text[:80])}`")


def rebuild(joined: JoinedDump, options: Options) -> Rebuilt:
    """The program a dump is of, as far as it tells; `options` are those of its release."""
    families = DisjointSets[str]()
    operands = find_operands(joined, families)
    drafts = draft_instructions(joined, operands)
    unite_stretches(joined, families)
    unite_entry_parameters(joined, families)
    parameters = {draft.name for draft in drafts.values() if draft.opcode == "parameter"}
    callees = {draft.name: draft.callees for draft in drafts.values() if draft.callees}
    in_flow = unflatten(joined, families, callees, parameters, _entry_name(joined))
    take_names(joined, in_flow, drafts)
    embedded = embedded_computations(joined, families, operands)
    writer = ModuleWriter(joined, drafts, in_flow, embedded)
    text = writer.text(options)
    return Rebuilt(hlo.parse(text, "rebuilt program"), tuple(writer.notes()))


def _entry_name(joined: JoinedDump) -> str:
    """The root of the stack trace; any name where there is none."""
    peak = joined.peak
    if peak is not None and peak.stack_trace is not None and peak.stack_trace.nodes:
        return peak.stack_trace.nodes[0].name
    return "main"
