"""A dump → its module: values → operands → instructions → computations → HLO text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.rebuild.embedded import embedded_computations
from hlomem.rebuild.shapes import take_printed_shapes
from hlomem.rebuild.trace import take_names
from hlomem.rebuild.writer import ModuleWriter
from hlomem.view.computations import find_computations
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.options import Options
    from hlomem.view.joined import JoinedDump


class Rebuilt(NamedTuple):
    module: HloModule
    notes: tuple[str, ...]
    """Assumptions made for missing facts."""


def require_parts(joined: JoinedDump) -> None:
    """Raises `InputError` if a dump lacks a part, or has a malformed instruction."""
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
    """The program of a dump; `options` are those of its release."""
    nest = find_computations(joined, _entry_name(joined))
    if nest.problems:
        raise InputError(nest.problems[0])
    for name, draft in nest.drafts.items():
        if draft.opcode.endswith("-update") and not draft.is_async:
            problem = f"`{name}` updates an asynchronous operation, which cannot be rebuilt"
            raise InputError(f"{problem}: plan the module instead")
    take_printed_shapes(joined, nest.drafts)
    take_names(joined, nest.computations, nest.drafts)
    embedded = embedded_computations(joined, nest)
    writer = ModuleWriter(joined, nest.drafts, nest.computations, embedded)
    text = writer.text(options)
    return Rebuilt(hlo.parse(text, "rebuilt program"), tuple(writer.notes()))


def _entry_name(joined: JoinedDump) -> str:
    """The root of the stack trace, or a default."""
    peak = joined.peak
    if peak is not None and peak.stack_trace is not None and peak.stack_trace.nodes:
        return peak.stack_trace.nodes[0].name
    return "main"
