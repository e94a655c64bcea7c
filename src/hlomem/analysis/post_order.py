"""Operands before users: the order in which XLA numbers the values of a computation."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from hlomem.hlo.names import split_number

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction


def instruction_post_order(computation: HloComputation) -> list[HloInstruction]:
    """`HloComputation::MakeInstructionPostOrder`: depth first from every unused instruction.

    XLA visits these in creation order. The text does not always show it (`twin_sends`): results
    are created last, as a rule, and numbers count upwards.
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


REMATERIALIZED = ".remat"
"""In the names of instructions that are rematerialized (`hlo_rematerialization.cc`)."""
_OPERANDS, _CONTROL = attrgetter("operands"), attrgetter("control_predecessors")


def _creation_order(instruction: HloInstruction) -> tuple[int, bool, str, int, int]:
    """Parameters first, then others by number, the root, rematerialized ones, copies of data.

    Fusions are numbered by name, and those with several results are created by a later pass
    (`backends/gpu/transforms/multi_output_fusion.cc`).
    """
    opcode, is_fusion = instruction.opcode, instruction.opcode == "fusion"
    base, number = split_number(instruction.name)
    if opcode == "parameter":
        return 0, False, "", instruction.parameter_number, 0
    if opcode == "copy-done" or REMATERIALIZED in instruction.name:
        return 3 + (opcode == "copy-done"), False, "", 0, instruction.index
    is_late = is_fusion and instruction.shape.is_tuple
    return 1 + instruction.is_root, is_late, base if is_fusion else "", number, instruction.index
