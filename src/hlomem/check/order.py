"""The sequence of a dump must be an order that its module permits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.check.evidence import as_evidence
from hlomem.check.findings import Finding
from hlomem.check.flow import iter_running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.check.program import TracedProgram
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.view.joined import JoinedDump


def check_order(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    time_of = joined.time_of
    for name, time in time_of.items():
        instruction = program.instruction_by_name.get(name)
        if instruction is None:
            continue
        before = [time_of.get(operand.name, -1) for operand in instruction.operands]
        if instruction.control_predecessors or (before and max(before) >= time):
            yield from _check_dependences(joined, instruction)
    yield from _check_missing(joined, program)
    yield from _check_nesting(joined, program)


def _check_dependences(joined: JoinedDump, instruction: HloInstruction) -> Iterator[Finding]:
    name, time_of = instruction.name, joined.time_of
    for operand in instruction.operands:
        if time_of.get(operand.name, -1) >= time_of[name]:
            what = f"{name} reads {operand.name}"
            yield _runs_later("order/data-dependence", what, joined, name, operand.name)
    for before in instruction.control_predecessors:
        if time_of.get(before.name, -1) >= time_of[name]:
            what = f"{name} waits for {before.name}"
            yield _runs_later("order/control-dependence", what, joined, name, before.name)


def _runs_later(rule: str, what: str, joined: JoinedDump, *names: str) -> Finding:
    values = [value for name in names for value in joined.values_at.get((name, ()), ())]
    return Finding(
        rule,
        f"{what}, which runs later",
        values=as_evidence(*values),
        evidence=tuple(f"{name} runs at {joined.time_of[name]}" for name in names),
    )


def _check_missing(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    """Every scheduled instruction is in the sequence, but the parser's invented ones."""
    missing: dict[HloComputation, list[HloInstruction]] = {}
    for name, instruction in program.instruction_by_name.items():
        if name not in joined.time_of and instruction.opcode != "get-tuple-element":
            missing.setdefault(instruction.parent, []).append(instruction)
    for computation, instructions in missing.items():
        yield Finding(
            "order/missing",
            f"{instructions[0].name} of {computation.name} is not in the sequence",
            evidence=(f"{len(instructions)} instructions of {computation.name} are missing",),
        )


def _check_nesting(joined: JoinedDump, program: TracedProgram) -> Iterator[Finding]:
    """Callees directly precede their caller, a loop's condition its body."""
    nested = iter_running(program.module.entry, joined.time_of)
    known = [name for name in joined.time_of if name in program.instruction_by_name]
    for instruction, name in zip(nested, known, strict=False):
        if instruction.name != name:
            home = program.instruction_by_name[name].parent.name
            yield Finding(
                "order/nesting",
                f"{name} of {home} runs instead of {instruction.name}",
                evidence=(
                    f"{name} runs at {joined.time_of[name]}",
                    f"{instruction.name} of {instruction.parent.name} must run there",
                ),
            )
            return
