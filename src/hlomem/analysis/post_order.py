"""Operands before users: the order in which XLA numbers the values of a computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction


def instruction_post_order(computation: HloComputation) -> list[HloInstruction]:
    """`HloComputation::MakeInstructionPostOrder`: depth first from every unused instruction.

    XLA begins with them in the order of its own list, which the text does not show; where there is
    a schedule, the order of the text has been the same wherever it could be seen.
    """
    post_order: list[HloInstruction] = []
    entered: set[HloInstruction] = set()
    done: set[HloInstruction] = set()
    for start in computation.instructions:
        if start.users:
            continue
        stack = [start]
        while stack:
            instruction = stack[-1]
            if instruction in entered:
                stack.pop()
                if instruction not in done:
                    done.add(instruction)
                    post_order.append(instruction)
                continue
            entered.add(instruction)
            # The first operand ends on top and is finished first.
            stack += [each for each in reversed(instruction.operands) if each not in done]
            stack += [each for each in instruction.control_predecessors if each not in done]
    return post_order
