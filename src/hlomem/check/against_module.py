"""A dump must agree with the values traced through its module (`hlomem.check.flow`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.check.evidence import as_evidence, value_finding
from hlomem.check.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.check.flow import Position
    from hlomem.check.program import TracedProgram
    from hlomem.hlo.text.attributes import InputOutputAlias
    from hlomem.view.joined import JoinedDump, PlacedValue


def check_against_module(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    yield from _check_flow(joined, program)
    if joined.dump.values is not None:
        for computation in program.iter_applied():
            for instruction in computation.instructions:
                # Compact text omits get-tuple-elements, see below.
                is_named = instruction.opcode != "get-tuple-element"
                if is_named and instruction.name not in joined.indices_at:
                    message = f"{instruction.name} of {computation.name} is not a value of the dump"
                    yield Finding("flow/no-value", message)
    yield from _check_headers(joined, program)
    for alias in program.module.input_output_alias:
        yield from _check_donation(alias, joined, program)
    yield from _check_not_donated(joined, program)


def _check_flow(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    """Shapes, positions and uses of scheduled values are those of the module."""
    flow = program.flow
    known, time_of = joined.placed_by_name, joined.time_of
    for value in flow.positions_of:
        if value not in known and value[0] in time_of:
            yield Finding(
                "flow/no-value", f"{_show(value)} of the module is not a value of the dump"
            )
    for placed in joined.placed:
        if placed.value.name not in time_of or placed.used is None:
            continue
        value = (placed.value.name, placed.index)
        if value not in flow.positions_of:
            yield value_finding(
                placed, "flow/unknown-value", "is a value the module does not define"
            )
            continue
        shape = program.instruction_by_name[value[0]].shape.subshape(placed.index)
        if shape.text != placed.value.shape and str(shape) != placed.value.shape:
            problem = f"has the shape {shape} in the module"
            yield value_finding(placed, "flow/shape-differs", problem)
        yield from _check_positions(placed, value, joined, program)
        yield from _check_uses(placed, value, joined, program)


def _check_positions(
    placed: PlacedValue, value: Position, joined: JoinedDump, program: TracedProgram
) -> Iterator[Finding]:
    assert placed.used is not None
    said = [(position.instruction, position.index or ()) for position in placed.used.positions]
    found = [(instruction.name, index) for instruction, index in program.flow.positions_of[value]]
    if said == found:
        return
    # XLA's compact text omits get-tuple-elements; the parser invents names for them.
    for position in sorted({*found} - {*said}):
        if position[0] in joined.time_of:
            problem = f"is {_show(position)} in the module"
            yield value_finding(placed, "flow/position-missing", problem)
    for position in sorted({*said} - {*found}):
        if position[0] in program.instruction_by_name:
            problem = f"is not {_show(position)} in the module"
            yield value_finding(placed, "flow/position-unknown", problem)


def _check_uses(
    placed: PlacedValue, value: Position, joined: JoinedDump, program: TracedProgram
) -> Iterator[Finding]:
    assert placed.used is not None
    said = [(use.instruction, use.operand, use.index or ()) for use in placed.used.uses or ()]
    uses = program.flow.uses_of(value)
    found = [(user.name, number, index) for user, number, index in uses]
    if said == found:
        return
    for user, number, _ in sorted({*found} - {*said}):
        if user in joined.time_of:
            problem = f"is operand {number} of {user} in the module"
            yield value_finding(placed, "flow/use-missing", problem)
    for user, number, _ in sorted({*said} - {*found}):
        if user in program.instruction_by_name:
            problem = f"is not operand {number} of {user} in the module"
            yield value_finding(placed, "flow/use-unknown", problem)


def _show(position: Position) -> str:
    return f"{position[0]}{{{','.join(map(str, position[1]))}}}"


def _check_headers(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    """Each argument and the output have an allocation, and returned values live out."""
    entry, parts_of = program.module.entry, program.flow.parts_of
    wanted = {
        (parameter.parameter_number, index)
        for parameter in entry.parameters
        for index in parts_of[parameter]
    }
    given = {
        (allocation.parameter.number, allocation.parameter.index)
        for allocation in joined.allocations
        if allocation.parameter
    }
    for number, index in sorted(wanted ^ given):
        there = "has no allocation" if (number, index) in wanted else "is not one of the module's"
        message = f"parameter {number} at {{{','.join(map(str, index))}}} {there}"
        yield Finding("ownership/parameter", message)
    output = parts_of[entry.root][()]
    returned = set(parts_of[entry.root].values())
    for allocation in joined.allocations:
        held = {(value.name, value.index or ()) for value in allocation.values}
        if not allocation.maybe_live_out and not held.isdisjoint(returned):
            problem = "holds a returned value, but may not live out"
        elif (allocation.output_shape is not None) != (output in held):
            problem = "is marked as the output's, but is not"
            if allocation.output_shape is None:
                problem = "is the output's, but is not marked so"
        elif allocation.output_shape not in (None, entry.root.shape.text_without_layout):
            problem = f"names another output shape than {entry.root.shape.text_without_layout}"
        else:
            continue
        message = f"allocation {allocation.index} {problem}"
        yield Finding("ownership/output", message, allocations=(allocation.index,))


def _check_donation(
    alias: InputOutputAlias, joined: JoinedDump, program: TracedProgram
) -> Iterator[Finding]:
    """An output has the slice of the argument donated for it."""
    entry = program.module.entry
    if alias.parameter_number >= len(entry.parameters):
        return
    parameter = entry.parameters[alias.parameter_number]
    given = joined.values_at.get((parameter.name, tuple(alias.parameter_index)), [])
    returned = joined.values_at.get((entry.root.name, tuple(alias.output_index)), [])
    for argument, output in zip(given, returned, strict=False):
        if argument.slice == output.slice:
            continue
        is_lost = argument.allocation.index != output.allocation.index
        may = is_lost and not alias.must_alias
        values = as_evidence(argument, output)
        lost = f"; {output.value.size} bytes more are needed" if is_lost else ""
        yield Finding(
            "alias/lost-donation" if is_lost else "alias/donation-differs",
            severity="warning" if may else "error",
            message=f"{values[1].name} is not in {values[0].name}, which was donated for it{lost}",
            values=values,
            allocations=(argument.allocation.index, output.allocation.index),
        )


def _check_not_donated(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    """An argument that is not donated is not written, even if it is returned unchanged."""
    donated = {
        (alias.parameter_number, tuple(alias.parameter_index))
        for alias in program.module.input_output_alias
    }
    for placed in joined.placed:
        parameter = placed.allocation.parameter
        if parameter is None:
            continue
        text = joined.printed.get(placed.value.name)
        if text is None or text.opcode == "parameter":
            continue
        if (parameter.number, parameter.index) not in donated:
            problem = f"overwrites argument {parameter.number}, which is not donated"
            yield value_finding(placed, "ownership/read-only", problem)
