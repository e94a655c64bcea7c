"""Step 1 of dataflow analysis: every part that an instruction defines gets a value and an id.

Mirrors `HloDataflowAnalysis::InitializeInstructionValueSets`
(`hlo/analysis/hlo_dataflow_analysis.cc`). Values inside fusions take ids and are only counted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hlomem.analysis.async_chain import is_supported_async
from hlomem.analysis.defined_parts import SPECIAL_OPCODES, defined_parts
from hlomem.analysis.values import HloPosition, HloValue, InstructionValueSet
from hlomem.base.errors import UnsupportedError
from hlomem.base.quantities import ValueId
from hlomem.hlo.opcodes import ASYNC_OPCODES, DEFINE_NOTHING
from hlomem.hlo.shape import ROOT_INDEX, ShapeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction


_make_position: Callable[[tuple[HloInstruction, ShapeIndex]], HloPosition]
_make_position = partial(tuple.__new__, HloPosition)  # faster than its constructor


class ValueTable:
    def __init__(self) -> None:
        self.values: dict[ValueId, HloValue] = {}
        self.sets: dict[HloInstruction, InstructionValueSet] = {}
        self.post_orders: dict[HloComputation, list[HloInstruction]] = {}
        """The instructions outside fusions, operands before users."""
        self.next_id = 0

    def define(self, post_order: Iterable[HloInstruction], *, has_own_parameters: bool) -> None:
        values, sets = self.values, self.sets
        for instruction in post_order:
            opcode, shape = instruction.opcode, instruction.shape
            if opcode == "parameter" and not has_own_parameters:
                sets[instruction] = [()] * shape.parts.count
            elif opcode in SPECIAL_OPCODES or shape.is_tuple:
                self.add_parts(instruction)
            elif opcode in DEFINE_NOTHING:
                sets[instruction] = [()]
            else:  # most define one value
                value_id = ValueId(self.next_id)
                self.next_id += 1
                positions = [_make_position((instruction, ROOT_INDEX))]
                value = HloValue(value_id, instruction, ROOT_INDEX, shape, False, positions)
                values[value_id] = value
                sets[instruction] = [(value,)]

    def add_parts(self, instruction: HloInstruction) -> None:
        opcode = instruction.opcode
        if opcode in ASYNC_OPCODES and not is_supported_async(instruction):
            problem = f"an `{opcode}` of this form, or without a known start, is not supported"
            raise instruction.error(problem, kind=UnsupportedError)
        value_set: InstructionValueSet = [()] * instruction.shape.parts.count
        for number in defined_parts(instruction):
            value_set[number] = (self.new_value(instruction, number),)
        self.sets[instruction] = value_set

    def new_value(
        self, instruction: HloInstruction, number: int, *, is_phi: bool = False
    ) -> HloValue:
        """A value for a part of a result, with the next id."""
        parts, value_id = instruction.shape.parts, ValueId(self.next_id)
        index = parts.indices[number]
        positions = [HloPosition(instruction, index)]
        value = HloValue(value_id, instruction, index, parts.shapes[number], is_phi, positions)
        self.values[value_id] = value
        self.next_id += 1
        return value


def define_values(computations: Iterable[HloComputation], call_graph: CallGraph) -> ValueTable:
    """Define the values of all computations, in XLA's order of computations."""
    table = ValueTable()
    for computation in computations:
        if call_graph.is_fused(computation):
            table.next_id += call_graph.bodies[computation].value_count
            continue
        post_order = table.post_orders[computation] = call_graph.post_order(computation)
        is_bound = call_graph.is_called(computation) and not call_graph.is_embedded(computation)
        table.define(post_order, has_own_parameters=not is_bound)
    return table
