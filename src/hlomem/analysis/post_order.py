"""Operands before users: the order in which XLA numbers the values of a computation."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction


def instruction_post_order(computation: HloComputation) -> list[HloInstruction]:
    """`HloComputation::MakeInstructionPostOrder`: depth first from every unused instruction.

    XLA visits these in creation order, which the order of the text has matched in every dump but
    for parameters and copies.
    """
    instructions = computation.instructions
    if _is_flat(instructions):
        return instructions[:]
    post_order: list[HloInstruction] = []
    entered = bytearray(len(instructions))
    done = bytearray(len(instructions))
    unused = [instruction for instruction in instructions if not instruction.users]
    if len(unused) > 1:
        unused.sort(key=_creation_order)
    for start in unused:
        stack = [start]
        while stack:
            instruction = stack[-1]
            index = instruction.index
            if not entered[index]:
                entered[index] = 1
                # The first operand ends on top and is finished first.
                pending = [
                    operand for operand in reversed(instruction.operands) if not done[operand.index]
                ]
                if instruction.control_predecessors:
                    pending += [e for e in instruction.control_predecessors if not done[e.index]]
                if pending:
                    stack += pending
                    continue
            stack.pop()
            if not done[index]:
                done[index] = 1
                post_order.append(instruction)
    return post_order


def _is_flat(instructions: list[HloInstruction]) -> bool:
    """Whether the last instruction reads all others, in order, and these read nothing."""
    if not instructions or len(instructions[-1].operands) != len(instructions) - 1:
        return False
    *others, last = instructions
    if last.operands != tuple(others) or last.control_predecessors:
        return False
    return not any(map(_OPERANDS, others)) and not any(map(_CONTROL, others))


_OPERANDS, _CONTROL = attrgetter("operands"), attrgetter("control_predecessors")


def _creation_order(instruction: HloInstruction) -> tuple[int, int]:
    """Parameters are created first, copies into other memory last."""
    if instruction.opcode == "parameter":
        return 0, instruction.parameter_number
    return 2 if instruction.opcode == "copy-done" else 1, instruction.index
