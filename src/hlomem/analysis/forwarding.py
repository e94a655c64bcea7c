"""Instructions that define nothing: how they pass their operands' values on.

One small function per rule of `Forwarding`, each giving the value sets of the whole result from
the value sets of others. Mirrors the `Update...ValueSet` functions of
`hlo/analysis/hlo_dataflow_analysis.cc`.
Merging at loops and conditionals is not here but in `hlomem.analysis.dataflow`.
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
from hlomem.hlo.opcodes import rules_by_opcode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.analysis.values import InstructionValueSet
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape
    from hlomem.hlo.traits import Forwarding

    ValueSets = Mapping[HloInstruction, InstructionValueSet]
    Forward = Callable[[HloInstruction, ValueSets], InstructionValueSet]


def _whole_operand(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    return sets[instruction.operands[0]]


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


def _call(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    return sets[instruction.called_computations[0].root]


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


def _copy_done(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    return sets[instruction.operands[0]][1:2]


def _all_gather_start(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    result = sets[instruction][:]
    number_of = instruction.shape.parts.number_of
    several = len(instruction.operands) > 1
    for i, operand in enumerate(instruction.operands):
        result[number_of[(0, i) if several else (0,)]] = sets[operand][0]
    return result


def _second_element(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    """An all-gather-done or collective-permute-done: what the start wrote, tables left out."""
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
    """Put a value set into a result of some shape from `path` on; its tables stay what they are."""
    parts = shape.parts
    begin = parts.number_of[path]
    for number, part in enumerate(source, begin):
        if not parts.shapes[number].is_tuple:
            result[number] = part


def _async_operands(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    """A start or update: operands into element 0, what the wrapped computation returns into 1."""
    result = sets[instruction][:]
    for i, operand in enumerate(bound_operands(instruction)):
        _leaves_into(result, instruction.shape, (0, i), sets[operand])
    if carries_result(instruction):
        root = wrapped_computation(instruction).root
        _leaves_into(result, instruction.shape, (1,), sets[root])
    return result


def _async_start(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    """The same, but that of an update in place has in 1 what is to be updated.

    `UpdateAsyncStartValueSet` of `hlo/analysis/hlo_dataflow_analysis.cc`.
    """
    result = _async_operands(instruction, sets)
    if wrapped_computation(instruction).root.opcode == "dynamic-update-slice":
        _leaves_into(result, instruction.shape, (1,), sets[instruction.operands[0]])
    return result


def _async_done(instruction: HloInstruction, sets: ValueSets) -> InstructionValueSet:
    """The wrapped computation's result; of what a loop carries, element 1 of what it carries."""
    result = sets[instruction][:]
    if is_carried(instruction):
        operand = instruction.operands[0]
        carried = sets[operand][operand.shape.parts.element(1)]
        _leaves_into(result, instruction.shape, (), carried)
        return result
    _leaves_into(result, instruction.shape, (), sets[wrapped_computation(instruction).root])
    return result


_RULE_OF: Mapping[Forwarding, Forward] = {
    "async done": _async_done,
    "async operands": _async_operands,
    "below top": _copy,
    "callee result": _call,
    "copy done": _copy_done,
    "copy start": _copy_start,
    "element": _get_tuple_element,
    "elements": _tuple,
    "gather start": _all_gather_start,
    "permute start": _collective_permute_start,
    "received element": _recv_done,
    "second element": _second_element,
    "sent operand": _send,
    "whole operand": _whole_operand,
}
FORWARD = rules_by_opcode(lambda traits: traits.forwards, _RULE_OF)
"""Rules by opcode that pass values on without merging them; a copy does so for tuples only."""
FORWARD_IN_PLACE: Mapping[Opcode, Forward] = {**FORWARD, "async-start": _async_start}
"""The same since August 2026 (openxla/xla a79e7be839)."""
