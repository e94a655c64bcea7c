"""What a dump lists is what its module says: values, positions, uses, headers, donations.

In: a plan and its program. What is worked out from the module (`hlomem.check.flow`) is believed.
"""

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
    """Every rule about what is listed and what is given."""
    yield from _check_flow(joined, program)
    if joined.dump.values is not None:
        yield from _check_applied(joined, program)
    yield from _check_headers(joined, program)
    for alias in program.module.input_output_alias:
        yield from _check_donation(alias, joined, program)
    yield from _check_not_donated(joined, program)


def _check_flow(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    """What the dump lists about each value that runs is what the module says about it."""
    flow = program.flow
    known = {(placed.value.name, placed.index) for placed in joined.placed}
    for value in flow.positions_of:
        if value not in known and value[0] in joined.time_of:
            yield Finding(
                rule="flow/no-value",
                message=f"{_show(value)} of the module is no value of the dump",
            )
    for placed in joined.placed:
        if placed.value.name not in joined.time_of or placed.used is None:
            continue
        value = (placed.value.name, placed.index)
        if value not in flow.positions_of:
            yield value_finding(
                placed, "flow/unknown-value", "is a value the module does not define"
            )
            continue
        yield from _check_shape(placed, program)
        yield from _check_positions(placed, value, joined, program)
        yield from _check_uses(placed, value, joined, program)


def _check_applied(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    """What a reducer or comparator computes is listed, too."""
    for computation in program.iter_applied():
        for instruction in computation.instructions:
            # Compact text leaves get-tuple-elements out, see below.
            is_named = instruction.opcode != "get-tuple-element"
            if is_named and instruction.name not in joined.indices_at:
                message = f"{instruction.name} of {computation.name} is no value of the dump"
                yield Finding(rule="flow/no-value", message=message)


def _check_shape(placed: PlacedValue, program: TracedProgram) -> Iterator[Finding]:
    shape = program.instruction_by_name[placed.value.name].shape.subshape(placed.index)
    if str(shape) != placed.value.shape:
        yield value_finding(placed, "flow/shape-differs", f"has the shape {shape} in the module")


def _check_positions(
    placed: PlacedValue, value: Position, joined: JoinedDump, program: TracedProgram
) -> Iterator[Finding]:
    assert placed.used is not None
    said = {(each.instruction, each.index or ()) for each in placed.used.positions}
    found = {(each.name, index) for each, index in program.flow.positions_of[value]}
    if said == found:
        return
    # XLA's compact text leaves get-tuple-elements out; the parser gives them names of its own.
    for position in sorted(found - said):
        if position[0] in joined.time_of:
            yield value_finding(
                placed, "flow/position-missing", f"is {_show(position)} in the module"
            )
    for position in sorted(said - found):
        if position[0] in program.instruction_by_name:
            yield value_finding(
                placed, "flow/position-unknown", f"is not {_show(position)} in the module"
            )


def _check_uses(
    placed: PlacedValue, value: Position, joined: JoinedDump, program: TracedProgram
) -> Iterator[Finding]:
    assert placed.used is not None
    listed = placed.used.uses or ()
    said = {(each.instruction, each.operand, each.index or ()) for each in listed}
    uses = program.flow.iter_uses(value)
    found = {(user.name, number, index) for user, number, index in uses}
    if said == found:
        return
    for user, number, _ in sorted(found - said):
        if user in joined.time_of:
            yield value_finding(
                placed, "flow/use-missing", f"is operand {number} of {user} in the module"
            )
    for user, number, _ in sorted(said - found):
        if user in program.instruction_by_name:
            problem = f"is not operand {number} of {user} in the module"
            yield value_finding(placed, "flow/use-unknown", problem)


def _show(position: Position) -> str:
    return f"{position[0]}{{{','.join(map(str, position[1]))}}}"


def _check_headers(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    """Each argument has its allocation, the output has one, and what is returned lives out."""
    entry, parts_of = program.module.entry, program.flow.parts_of
    wanted = {
        (each.parameter_number, index) for each in entry.parameters for index in parts_of[each]
    }
    given = {
        (each.parameter.number, each.parameter.index)
        for each in joined.allocations
        if each.parameter
    }
    for number, index in sorted(wanted ^ given):
        there = "has no allocation" if (number, index) in wanted else "is none of the module"
        message = f"parameter {number} at {{{','.join(map(str, index))}}} {there}"
        yield Finding(rule="ownership/parameter", message=message)
    output = parts_of[entry.root][()]
    returned = set(parts_of[entry.root].values())
    for allocation in joined.allocations:
        held = {(each.name, each.index or ()) for each in allocation.values}
        if not allocation.maybe_live_out and not held.isdisjoint(returned):
            problem = "holds what is returned, but may not live out"
        elif (allocation.output_shape is not None) != (output in held):
            problem = "is marked as the output's, but is not"
            if allocation.output_shape is None:
                problem = "is the output's, but is not marked so"
        elif allocation.output_shape not in (None, entry.root.shape.text_without_layout):
            problem = f"names another output shape than {entry.root.shape.text_without_layout}"
        else:
            continue
        message = f"allocation {allocation.index} {problem}"
        yield Finding(rule="ownership/output", message=message, allocations=(allocation.index,))


def _check_donation(
    alias: InputOutputAlias, joined: JoinedDump, program: TracedProgram
) -> Iterator[Finding]:
    """An output lives in the argument it was given: same place, same size."""
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
            rule="alias/lost-donation" if is_lost else "alias/donation-differs",
            severity="warning" if may else "error",
            message=f"{values[1].name} is not in {values[0].name}, which was donated for it{lost}",
            values=values,
            allocations=(argument.allocation.index, output.allocation.index),
        )


def _check_not_donated(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    """What the caller did not give away is not written, even when it is returned as it is."""
    donated = {
        (each.parameter_number, tuple(each.parameter_index))
        for each in program.module.input_output_alias
    }
    for placed in joined.placed:
        parameter = placed.allocation.parameter
        text = joined.printed.get(placed.value.name)
        if parameter is None or text is None or text.opcode == "parameter":
            continue
        if (parameter.number, parameter.index) not in donated:
            problem = f"overwrites argument {parameter.number}, which is not donated"
            yield value_finding(placed, "ownership/read-only", problem)
