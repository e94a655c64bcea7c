"""Chains of asynchronous operations: a start, perhaps updates, and what ends it.

In: an async-start, -update or -done. Out: what its chain hands to the computation it wraps, and
where in the chain that computation runs. The start has the operands as a rule; libtpu 0.0.51 also
starts with fewer and adds the rest in an update, and carries what is started in one turn of a loop
to the next, whose done knows its start by nothing but a part of the loop's state. Mirrors
`hlo/ir/hlo_instruction_utils.cc`.
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
        follower = next(
            (
                user
                for user in chain[-1].users
                if user.opcode in ASYNC_OPCODES and user.operands[0] is chain[-1]
            ),
            None,
        )
        if follower is None:
            break
        chain.append(follower)
    return chain


def is_carried(operation: HloInstruction) -> bool:
    """Whether an operation ends what was started elsewhere, in a loop's turn before."""
    return operation.opcode == "async-done" and operation.operands[0].opcode not in ASYNC_OPCODES


def wrapped_computation(operation: HloInstruction) -> HloComputation:
    """The computation a chain runs."""
    computation = operation.async_wrapped_computation
    assert computation is not None  # `is_supported_async` was asked before
    return computation


def bound_operands(operation: HloInstruction) -> tuple[HloInstruction, ...]:
    """The operands a chain has so far (`GetAsyncBoundOperands`)."""
    if operation.opcode == "async-start":
        return operation.operands
    return bound_operands(operation.operands[0]) + operation.operands[1:]


def carries_result(operation: HloInstruction) -> bool:
    """Whether a start or update has a place for what the chain returns."""
    root = wrapped_computation(operation).root
    return _same_form(operation.shape.elements[1], root.shape)


def is_fully_bound_here(operation: HloInstruction) -> bool:
    """Whether the wrapped computation runs before this operation (`IsFirstFullyBound`)."""
    if is_carried(operation) or not _is_fully_bound(operation):
        return False
    return operation.opcode == "async-start" or not _is_fully_bound(operation.operands[0])


def is_supported_async(operation: HloInstruction) -> bool:
    """Whether the start is known, and the shapes are those of an asynchronous operation."""
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
    operand_count = len(wrapped_computation(operation).parameters)
    if len(bound_operands(operation)) < operand_count:
        return False
    return operation.opcode == "async-done" or carries_result(operation)


def _same_form(one: Shape, other: Shape) -> bool:
    """Whether two shapes have the same tuples in the same places."""
    return one.parts.indices == other.parts.indices
