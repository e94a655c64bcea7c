"""A module as plain values, to compare what two of them hold."""

from __future__ import annotations

from hlomem.hlo import HloComputation, HloInstruction, HloModule
from hlomem.hlo.opcodes import CALL_ATTRIBUTE_NAMES

_NAMES = {*CALL_ATTRIBUTE_NAMES, "control-predecessors"}


def structure(module: HloModule) -> object:
    """Everything a module holds, by names; the mark of a name does not count."""
    return (
        module.name,
        module.attributes,
        module.stack_frame_tables.tables,
        module.entry.name,
        [_computation(each) for each in module.computations],
    )


def _computation(computation: HloComputation) -> object:
    return (
        computation.name,
        computation.is_entry,
        computation.execution_thread,
        computation.root.name,
        [each.name for each in computation.parameters],
        [_instruction(each) for each in computation.instructions],
        [each.index for each in computation.instructions],
    )


def _instruction(instruction: HloInstruction) -> object:
    attributes = {
        name: text.replace("%", "") if name in _NAMES else text
        for name, text in instruction.attributes.items()
    }
    return (
        instruction.name,
        instruction.shape,
        instruction.opcode,
        instruction.payload,
        attributes,
        [each.name for each in instruction.operands],
        [each.name for each in instruction.called_computations],
        [each.name for each in instruction.control_predecessors],
        [each.name for each in instruction.users],
    )
