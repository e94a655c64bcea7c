"""The module of a dump: instructions by name, value flow, loops and conditionals."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from hlomem.base.quantities import Step
from hlomem.check.flow import Flow, Position, is_update, trace
from hlomem.view.control_flow import Branch, Conditional, Loop, Structure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.view.joined import JoinedDump


Span: TypeAlias = tuple[Step, Step]
"""The first step of a computation, and one past its last."""


class TracedProgram(Struct, frozen=True, eq=False):
    """A module's scheduled code: the entry and the callees of loops, branches and calls."""

    module: HloModule
    flow: Flow
    instruction_by_name: dict[str, HloInstruction]
    spans: dict[HloComputation, Span]
    structure: Structure

    @property
    def read_only(self) -> set[Position]:
        """The arguments that are not donated, which stay unchanged until the end."""
        given = {
            (alias.parameter_number, tuple(alias.parameter_index))
            for alias in self.module.input_output_alias
        }
        return {
            (parameter.name, index)
            for parameter in self.module.entry.parameters
            for index in self.flow.parts_of[parameter]
            if (parameter.parameter_number, index) not in given
        }

    def iter_applied(self) -> Iterator[HloComputation]:
        """Reducers, comparators and the like; XLA defines their values even inside a fusion."""
        entry = self.module.entry
        seen, pending = {entry}, [entry]
        while pending:
            for call in pending.pop().calls():
                new = [callee for callee in call.called_computations if callee not in seen]
                seen.update(new)
                pending += new
                if call.opcode != "fusion":
                    yield from (callee for callee in new if callee not in self.flow.callers)


def trace_program(module: HloModule, joined: JoinedDump) -> TracedProgram:
    phis = {(placed.value.name, placed.index) for placed in joined.placed if placed.value.is_phi}
    is_old = _has_updates_at_start(module, joined)
    flow = trace(module, is_old=is_old, kept=phis.__contains__)
    by_name = {instruction.name: instruction for instruction in flow.parts_of}
    spans: dict[HloComputation, Span] = {}
    for instruction in flow.parts_of:
        moment = joined.time_of.get(instruction.name)
        if moment is not None:
            first, end = spans.get(instruction.parent, (moment, moment))
            spans[instruction.parent] = min(first, moment), max(end, Step(moment + 1))
    return TracedProgram(module, flow, by_name, spans, _structure(by_name, joined, spans))


def _has_updates_at_start(module: HloModule, joined: JoinedDump) -> bool:
    """Whether the dump lists the result of an asynchronous update as a part of its start."""
    return any(
        value.value.name == start.called_computations[0].root.name
        for computation in module.outer_computations  # nothing inside a fusion is asynchronous
        for start in computation.instructions
        if start.opcode == "async-start" and is_update(start)
        for value in joined.values_at.get((start.name, (1,)), ())
    )


def _structure(
    by_name: dict[str, HloInstruction], joined: JoinedDump, spans: Mapping[HloComputation, Span]
) -> Structure:
    loops, conditionals = [], []
    for name in joined.time_of:
        instruction = by_name.get(name)
        if instruction is None:
            continue
        called = instruction.called_computations
        if instruction.opcode == "while":
            body, condition = called
            if condition in spans and body in spans:
                first, second = condition.parameters[0].name, body.parameters[0].name
                loops.append(Loop(name, first, second, body.root.name))
        elif instruction.opcode == "conditional":
            branches = [
                Branch(*spans[branch], branch.root.name)
                if branch in spans
                else Branch(Step(0), Step(0), None)
                for branch in called
            ]
            conditionals.append(Conditional(name, tuple(branches)))
    return Structure(tuple(loops), tuple(conditionals))
