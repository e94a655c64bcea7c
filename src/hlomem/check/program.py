"""The module of a dump: instructions by name, value flow, loops and conditionals."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from hlomem.base.quantities import Step
from hlomem.check.flow import Flow, Index, Position, is_marker, is_update, trace
from hlomem.view.control_flow import Branch, Conditional, Loop, Structure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.opcodes import Opcode
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
    flow = trace(module, older=set(_find_older(module, joined)), kept=phis.__contains__)
    by_name = {instruction.name: instruction for instruction in flow.parts_of}
    spans: dict[HloComputation, Span] = {}
    for instruction in flow.parts_of:
        moment = joined.time_of.get(instruction.name)
        if moment is not None:
            first, end = spans.get(instruction.parent, (moment, moment))
            spans[instruction.parent] = min(first, moment), max(end, Step(moment + 1))
    if module.entry in spans:  # its first instruction may be a call, after what that calls
        spans[module.entry] = Step(0), spans[module.entry][1]
    return TracedProgram(module, flow, by_name, spans, _structure(by_name, joined, spans))


def _find_older(module: HloModule, joined: JoinedDump) -> Iterator[Opcode]:
    """The opcodes whose results the dump lists as XLA did before it forwarded operands there."""
    for computation in module.outer_computations:  # neither is inside a fusion
        for instruction in computation.instructions:
            opcode, name = instruction.opcode, instruction.name
            at: Index = (1,)
            if opcode == "async-start" and is_update(instruction):
                name = instruction.called_computations[0].root.name
            elif opcode == "custom-call" and is_marker(instruction):
                at = (0,) if instruction.shape.is_tuple else ()
            else:
                continue
            held = joined.values_at.get((instruction.name, at), ())
            if any(placed.value.name == name for placed in held):
                yield opcode


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
