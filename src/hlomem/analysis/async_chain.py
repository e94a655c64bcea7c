"""Chains of asynchronous operations: a start, optional updates, and a done.

Usually the start has all operands. libtpu 0.0.51 also adds operands in updates, and carries started
operations from one loop iteration to the next, where the done reads a part of the loop's state.
Mirrors `hlo/ir/hlo_instruction_utils.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import ASYNC_OPCODES

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape


def async_chain(start: HloInstruction) -> list[HloInstruction]:
    """The operations of a chain in order, the start first."""
    chain = [start]
    while chain[-1].opcode != "async-done":
        last = chain[-1]
        followers = (user for user in last.users if user.opcode in ASYNC_OPCODES)
        follower = next((user for user in followers if user.operands[0] is last), None)
        if follower is None:
            break
        chain.append(follower)
    return chain


def is_carried(operation: HloInstruction) -> bool:
    """Whether an operation was started in an earlier loop iteration."""
    return operation.opcode == "async-done" and operation.operands[0].opcode not in ASYNC_OPCODES


def wrapped_computation(operation: HloInstruction) -> HloComputation:
    computation = operation.async_wrapped_computation
    assert computation is not None  # checked by `is_supported_async`
    return computation


def bound_operands(operation: HloInstruction) -> tuple[HloInstruction, ...]:
    """The operands of a chain up to an operation (`GetAsyncBoundOperands`)."""
    if operation.opcode == "async-start":
        return operation.operands
    return bound_operands(operation.operands[0]) + operation.operands[1:]


def carries_result(operation: HloInstruction) -> bool:
    """Whether the shape of a start or update includes the result of the chain."""
    return _same_form(operation.shape.elements[1], wrapped_computation(operation).root.shape)


def is_fully_bound_here(operation: HloInstruction) -> bool:
    """Whether the wrapped computation runs before this operation (`IsFirstFullyBound`)."""
    if is_carried(operation) or not _is_fully_bound(operation):
        return False
    return operation.opcode == "async-start" or not _is_fully_bound(operation.operands[0])


def is_supported_async(operation: HloInstruction) -> bool:
    """Whether the start is known and the shapes are consistent."""
    if is_carried(operation):
        elements = operation.operands[0].shape.elements
        return len(elements) > 1 and _same_form(operation.shape, elements[1])
    computation = operation.async_wrapped_computation
    if computation is None:
        return False
    operands = bound_operands(operation)
    if len(operands) > len(computation.parameters):
        return False
    if operation.opcode == "async-done":
        return _same_form(operation.shape, computation.root.shape)
    elements = operation.shape.elements
    return (
        len(elements) > 1
        and len(elements[0].elements) >= len(operands)
        and all(
            _same_form(element, operand.shape)
            for element, operand in zip(elements[0].elements, operands, strict=False)
        )
    )


def _is_fully_bound(operation: HloInstruction) -> bool:
    if len(bound_operands(operation)) < len(wrapped_computation(operation).parameters):
        return False
    return operation.opcode == "async-done" or carries_result(operation)


def _same_form(one: Shape, other: Shape) -> bool:
    """Whether two shapes have the same tuple structure."""
    return one.parts.indices == other.parts.indices
