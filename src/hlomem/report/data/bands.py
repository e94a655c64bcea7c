"""The steps of each called computation, one span each (`HloLiveRange::FlattenSchedule`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.dump.records import Record
from hlomem.report.data.names import short_operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloModule
    from hlomem.report.data.memory import MemoryView


class Band(Record, frozen=True, kw_only=True):
    """The steps of a called computation."""

    name: str
    operation: str
    """The short JAX name of its caller; empty if unknown."""
    kind: str
    """The caller's opcode: `while`, `conditional`, `call`, …"""
    start: int
    end: int
    """The last step, inclusive."""
    depth: int
    """The number of enclosing bands."""


def build_bands(memory: MemoryView) -> tuple[Band, ...]:
    """The bands by first step, outer before inner."""
    spans = list(_of_module(memory, memory.module) if memory.module else _of_dump(memory))
    spans.sort(key=lambda span: (span.start, -span.end, span.name))
    bands: list[Band] = []
    around: list[int] = []  # last steps of the enclosing bands
    for span in spans:
        while around and around[-1] < span.start:
            around.pop()
        bands.append(_band(memory, span, len(around)))
        around.append(span.end)
    return tuple(bands)


class _Span(NamedTuple):
    name: str
    caller: str
    kind: str
    start: int
    end: int


def _band(memory: MemoryView, span: _Span, depth: int) -> Band:
    operation = memory.moment(memory.joined.time_of[span.caller]).op_name
    return Band(
        name=span.name,
        operation=short_operation(operation) if operation else "",
        kind=span.kind,
        start=span.start,
        end=span.end,
        depth=depth,
    )


def _of_module(memory: MemoryView, module: HloModule) -> Iterator[_Span]:
    time_of = memory.joined.time_of
    scheduled = module.outer_computations
    caller_of = {
        callee: instruction
        for computation in scheduled
        for instruction in computation.instructions
        for callee in instruction.called_computations
        if instruction.name in time_of
    }
    for computation in scheduled:
        caller = caller_of.get(computation)
        times = [
            time_of[member.name] for member in computation.instructions if member.name in time_of
        ]
        if times and caller is not None:
            yield _Span(computation.name, caller.name, caller.opcode, min(times), max(times))


def _of_dump(memory: MemoryView) -> Iterator[_Span]:
    time_of = memory.joined.time_of
    for loop in memory.structure.loops:
        start = min(time_of[loop.condition_parameter], time_of[loop.body_parameter])
        end = time_of[loop.instruction] - 1
        yield _Span(loop.instruction, loop.instruction, "while", start, end)
    for conditional in memory.structure.conditionals:
        for number, branch in enumerate(conditional.branches):
            name = f"{conditional.instruction}, branch {number}"
            caller = conditional.instruction
            yield _Span(name, caller, "conditional", branch.start, branch.end - 1)
