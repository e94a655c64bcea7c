"""A checker of declared aliasing: a fusion writes over an operand that nothing needs any more.

The terms of both programs must be equal (`equivalence`), whatever is written where. A declaration
that is new is then worked out from the edited module alone: the kernel reads an element only where
it writes it, reads that memory by no other operand, and all else that touches the value has run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.check.flow import Flow, Position, trace
from hlomem.check.fusions import find_stray_read
from hlomem.opt.checks.equivalence import find_meaning_problems
from hlomem.opt.checks.order import STRICT, find_effect_problems, run_times, touching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.hlo.text.attributes import OperandAlias
    from hlomem.opt.checks.order import Allowed

_KEPT_APART = ("constant", "parameter", "while")
"""Opcodes whose values lie in memory that others have a say in."""


def find_over_problems(given: HloModule, edited: HloModule, allowed: Allowed = STRICT) -> list[str]:
    """Problems of a module whose fusions declare to write over operands."""
    problems = find_meaning_problems(given, edited, allowed)
    problems = problems or find_effect_problems(given, edited, allowed)
    return problems or list(_check_declarations(given, edited))


def _check_declarations(given: HloModule, edited: HloModule) -> Iterator[str]:
    flow, times = trace(edited), run_times(edited, {})
    known = {one.name: one.output_to_operand_aliasing for one in trace(given).parts_of}
    for instruction in flow.parts_of:
        aliases = instruction.output_to_operand_aliasing
        if aliases == known.get(instruction.name, ()):
            continue
        if instruction.attributes.get("kind") != "kLoop" or len(aliases) != 1:
            yield f"{instruction.name} is no loop that may declare what it writes over"
            continue
        yield from _check(instruction, aliases[0], flow, times)


def _check(
    fusion: HloInstruction, alias: OperandAlias, flow: Flow, times: dict[str, int]
) -> Iterator[str]:
    operand = fusion.operands[alias.operand_number]
    if alias.output_index or alias.operand_index or operand.shape.text != fusion.shape.text:
        yield f"{fusion.name} has another shape than what it is to be written over"
        return
    value = flow.parts_of[operand][()]
    stray = find_stray_read(fusion, alias.operand_number, alias.output_index)
    if stray is not None:
        yield f"{fusion.name} reads {value[0]} elsewhere than it writes: {stray.instruction}"
    if [flow.parts_of[one].get(()) for one in fusion.operands].count(value) != 1:
        yield f"{fusion.name} reads {value[0]} by two operands, and writes over it"
    yield from _check_others(fusion, value, flow, times)


def _check_others(
    fusion: HloInstruction, value: Position, flow: Flow, times: dict[str, int]
) -> Iterator[str]:
    """All that touches a value has run, and no computation hands it out."""
    maker = next(one for one in flow.parts_of if one.name == value[0])
    if maker.opcode in _KEPT_APART or maker.parent is not fusion.parent:
        yield f"{fusion.name} writes over {value[0]}, which is not its to take"
    holders = {one for one, _ in flow.positions_of.get(value, ())}
    if not holders.isdisjoint(flow.roots):
        yield f"{fusion.name} writes over {value[0]}, which is a result"
    for name in touching(flow, value):
        if name != fusion.name and times.get(name, -1) > times[fusion.name]:
            yield f"{name} needs {value[0]}, which {fusion.name} has written over by then"
