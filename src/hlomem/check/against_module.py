"""What only the module can tell: the order it demands, who reads what, what is donated.

In: a plan and its program. The uses and positions a dump lists are not trusted here: reads are
taken from the operands of the module's own instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.check.findings import Finding
from hlomem.check.plan import about, involve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.check.liveness import Liveness
    from hlomem.check.plan import Placed, Plan
    from hlomem.check.program import Program
    from hlomem.dump.records import ShapeIndex
    from hlomem.hlo.attributes import InputOutputAlias
    from hlomem.hlo.ir import HloInstruction

# What these do with an operand is not a read at their own moment: they forward it, or run others.
_FORWARDS = frozenset({"tuple", "get-tuple-element", "bitcast", "opt-barrier", "add-dependency"})
_RUNS_OTHERS = frozenset({"call", "conditional", "while"})


def check_against_module(plan: Plan, program: Program, liveness: Liveness) -> Iterator[Finding]:
    """Every rule that needs the module."""
    yield from _check_order(plan, program)
    for placed in plan.placed:
        if placed.life is not None and placed.used is not None:
            yield from _check_reads(placed, plan, program, liveness)
    for alias in program.module.input_output_alias:
        yield from _check_donation(alias, plan, program)
    yield from _check_not_donated(plan, program)


def _check_order(plan: Plan, program: Program) -> Iterator[Finding]:
    """The sequence runs everything once what it needs has run."""
    for name, moment in plan.time_of.items():
        instruction = program.instruction_by_name.get(name)
        if instruction is None:
            continue
        for operand in instruction.operands:
            if plan.time_of.get(operand.name, moment - 1) >= moment:
                yield _out_of_order("data", f"{name} reads {operand.name}", plan, name, operand)
        for before in instruction.control_predecessors:
            if plan.time_of.get(before.name, moment - 1) >= moment:
                yield _out_of_order(
                    "control", f"{name} waits for {before.name}", plan, name, before
                )
    for computation in program.computations:
        # XLA's compact text leaves get-tuple-elements out; the parser gives them names of its own.
        listed = [each for each in computation.instructions if each.opcode != "get-tuple-element"]
        missing = [each for each in listed if each.name not in plan.time_of]
        if plan.time_of and missing and len(missing) < len(listed):
            yield Finding(
                rule="order/missing",
                message=f"{missing[0].name} of {computation.name} is not in the sequence",
                evidence=(f"{len(missing)} instructions of {computation.name} are missing",),
            )


def _out_of_order(kind: str, what: str, plan: Plan, name: str, before: HloInstruction) -> Finding:
    return Finding(
        rule=f"order/{kind}-dependence",
        message=f"{what}, which runs later",
        evidence=(
            f"{name} runs at {plan.time_of[name]}",
            f"{before.name} runs at {plan.time_of[before.name]}",
        ),
    )


def _check_reads(
    placed: Placed, plan: Plan, program: Program, liveness: Liveness
) -> Iterator[Finding]:
    """A value is alive when an instruction of the module reads it, and appears where it goes."""
    assert placed.used is not None
    covered = liveness.covered_until(placed)
    held = [(each.instruction, tuple(each.index or ())) for each in placed.used.positions]
    found, pending = set(held), list(held)
    while pending:
        name, index = pending.pop()
        instruction = program.instruction_by_name.get(name)
        for user in instruction.users if instruction is not None else ():
            assert instruction is not None
            goes_to = _forwarded(instruction, index, user)
            if goes_to is not None and goes_to not in found:
                found.add(goes_to)
                pending.append(goes_to)
                if user.name in plan.time_of:
                    where = f"{goes_to[0]}{{{','.join(map(str, goes_to[1]))}}}"
                    yield about(placed, "live/position-missing", f"is {where} in the module")
            last, what = _last_read(plan, user)
            if last > covered:
                problem = f"is alive until {covered}, but {what} at {last}, says the module"
                yield about(placed, "live/ends-early", problem)
                return


def _forwarded(
    source: HloInstruction, index: ShapeIndex, user: HloInstruction
) -> tuple[str, ShapeIndex] | None:
    """The position in a user that is the same value; None where it is another."""
    if user.opcode == "tuple":
        return user.name, (user.operands.index(source), *index)
    if user.opcode in ("bitcast", "opt-barrier"):
        return user.name, index
    if user.opcode == "get-tuple-element" and index and index[0] == user.tuple_index:
        return user.name, index[1:]
    return None


def _last_read(plan: Plan, user: HloInstruction) -> tuple[int, str]:
    """When a user is done with its operand, and what it does; -1 where others say it better."""
    if user.opcode in _FORWARDS or user.opcode in _RUNS_OTHERS:
        return -1, ""
    moment, what = plan.time_of.get(user.name, -1), f"read by {user.name}"
    if user.opcode.endswith("-start"):
        # The operand of an asynchronous operation is read until the operation is done.
        for done in user.users:
            if done.opcode.endswith("-done") and plan.time_of.get(done.name, -1) > moment:
                moment, what = plan.time_of[done.name], f"read by {user.name} until {done.name}"
    return moment, what


def _check_donation(alias: InputOutputAlias, plan: Plan, program: Program) -> Iterator[Finding]:
    """An output lives in the argument it was given: same place, same size."""
    entry = program.module.entry
    if alias.parameter_number >= len(entry.parameters):
        return
    parameter = entry.parameters[alias.parameter_number]
    given = plan.values_at.get((parameter.name, tuple(alias.parameter_index)), [])
    returned = plan.values_at.get((entry.root.name, tuple(alias.output_index)), [])
    for argument, output in zip(given, returned, strict=False):
        if argument.slice == output.slice:
            continue
        is_lost = argument.allocation.index != output.allocation.index
        may = is_lost and not alias.must_alias
        values = involve(argument, output)
        lost = f"; {output.value.size} bytes more are needed" if is_lost else ""
        yield Finding(
            rule="alias/lost-donation" if is_lost else "alias/donation-differs",
            severity="warning" if may else "error",
            message=f"{values[1].name} is not in {values[0].name}, which was donated for it{lost}",
            values=values,
            allocations=(argument.allocation.index, output.allocation.index),
        )


def _check_not_donated(plan: Plan, program: Program) -> Iterator[Finding]:
    """What the caller did not give away is not written, even when it is returned as it is."""
    donated = {
        (each.parameter_number, tuple(each.parameter_index))
        for each in program.module.input_output_alias
    }
    for placed in plan.placed:
        parameter = placed.allocation.parameter
        text = plan.text_of.get(placed.value.name)
        if parameter is None or text is None or text.opcode == "parameter":
            continue
        if (parameter.number, parameter.index) not in donated:
            problem = f"overwrites argument {parameter.number}, which is not donated"
            yield about(placed, "ownership/read-only", problem)
