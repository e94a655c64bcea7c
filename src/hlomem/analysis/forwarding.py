"""Instructions that forward values of their operands.

One function per rule of `Forwarding`, from the value sets of operands to those of the result.
Mirrors the `Update...ValueSet` functions of `hlo/analysis/hlo_dataflow_analysis.cc`. Loops and
conditionals merge values in `propagation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.async_chain import (
    bound_operands,
    carries_result,
    is_carried,
    wrapped_computation,
)
from hlomem.analysis.defined_parts import is_in_place_permute
from hlomem.hlo.opcodes import Opcode, rules_by_opcode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.analysis.values import InstructionValueSet
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.hlo.traits import Forwarding

    ValueSets = Mapping[HloInstruction, InstructionValueSet]
    Forward = Callable[[HloInstruction, ValueSets], InstructionValueSet]


def _tuple(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    result = sets[instruction][:1]
    for operand in instruction.operands:
        result += sets[operand]
    return result


def _get_tuple_element(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    operand = instruction.operands[0]
    return sets[operand][operand.shape.parts.element(instruction.tuple_index)]


def _copy(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    """A copy of a tuple copies the table, not the elements."""
    return sets[instruction][:1] + sets[instruction.operands[0]][1:]


def _into_element(
    instruction: HloInstruction, sets: ValueSets, path: tuple[int, ...], source: InstructionValueSet
) -> InstructionValueSet:
    """The result so far, with `source` from the part at `path` on."""
    result = sets[instruction][:]
    begin = instruction.shape.parts.number_of[path]
    result[begin : begin + len(source)] = source
    return result


def _send(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    return _into_element(instruction, sets, (0,), sets[instruction.operands[0]])


def _recv_done(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    operand = instruction.operands[0]
    element = operand.shape.parts.element(0)
    return _into_element(instruction, sets, (0,), sets[operand][element])


def _copy_start(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    return _into_element(instruction, sets, (1,), sets[instruction.operands[0]][:1])


def _all_gather_start(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    result = sets[instruction][:]
    number_of = instruction.shape.parts.number_of
    several = len(instruction.operands) > 1
    for i, operand in enumerate(instruction.operands):
        result[number_of[(0, i) if several else (0,)]] = sets[operand][0]
    return result


def _second_element(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    """An all-gather-done or collective-permute-done: the start's result without its tables."""
    operand = instruction.operands[0]
    result = sets[operand][operand.shape.parts.element(1)]
    return sets[instruction][:1] + result[1:] if instruction.shape.is_tuple else result[:1]


def _collective_permute_start(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    result = sets[instruction][:]
    number_of = instruction.shape.parts.number_of
    operands = instruction.operands
    if len(operands) > 1 and not is_in_place_permute(instruction):
        for i, operand in enumerate(operands):
            result[number_of[0, i]] = sets[operand][0]
    elif operands[0].shape.is_tuple:
        starts = operands[0].shape.parts.element_starts
        for i, start in enumerate(starts[:-1]):
            result[number_of[0, i]] = sets[operands[0]][start]
    else:
        result[number_of[0,]] = sets[operands[0]][0]
    return result


def _leaves_into(
    result: InstructionValueSet, shape: Shape, path: tuple[int, ...], source: InstructionValueSet
) -> None:
    """Copy a value set into a result from `path` on, except for tuple tables."""
    parts = shape.parts
    for number, part in enumerate(source, parts.number_of[path]):
        if not parts.shapes[number].is_tuple:
            result[number] = part


def _async_operands(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    """A start or update: operands into element 0, the wrapped computation's result into 1."""
    result = sets[instruction][:]
    for i, operand in enumerate(bound_operands(instruction)):
        _leaves_into(result, instruction.shape, (0, i), sets[operand])
    if carries_result(instruction):
        root = wrapped_computation(instruction).root
        _leaves_into(result, instruction.shape, (1,), sets[root])
    return result


def _async_start(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    """`UpdateAsyncStartValueSet`: for an in-place update, element 1 is the updated operand."""
    result = _async_operands(instruction, sets)
    if wrapped_computation(instruction).root.opcode == "dynamic-update-slice":
        _leaves_into(result, instruction.shape, (1,), sets[instruction.operands[0]])
    return result


def _async_done(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    """The wrapped computation's result; of a carried operation, element 1 of the operand."""
    result = sets[instruction][:]
    if is_carried(instruction):
        operand = instruction.operands[0]
        source = sets[operand][operand.shape.parts.element(1)]
    else:
        source = sets[wrapped_computation(instruction).root]
    _leaves_into(result, instruction.shape, (), source)
    return result


_RULE_OF: Mapping[Forwarding, Forward] = {
    "async done": _async_done,
    "async operands": _async_operands,
    "below top": _copy,
    "callee result": lambda call, sets: sets[call.called_computations[0].root],
    "copy done": lambda done, sets: sets[done.operands[0]][1:2],
    "copy start": _copy_start,
    "element": _get_tuple_element,
    "elements": _tuple,
    "gather start": _all_gather_start,
    "permute start": _collective_permute_start,
    "received element": _recv_done,
    "second element": _second_element,
    "sent operand": _send,
    "whole operand": lambda instruction, sets: sets[instruction.operands[0]],
}
FORWARD = rules_by_opcode(lambda traits: traits.forwards, _RULE_OF)
"""Rules by opcode for forwarding without merging; that of `copy` is for tuples only."""
FORWARD_IN_PLACE: Mapping[Opcode, Forward] = {**FORWARD, "async-start": _async_start}
"""`FORWARD` since August 2026 (openxla/xla a79e7be839)."""
