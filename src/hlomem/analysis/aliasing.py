"""Values → buffers: the sets of values that must have the same offset.

Values share storage across loop iterations, branches, in-place instructions, and outputs that alias
parameters. Mirrors `hlo/analysis/hlo_alias_analysis.cc`.
"""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.analysis.alias_rules import MAY_WRITE_IN_PLACE, in_place_pairs
from hlomem.base.quantities import BufferId

if TYPE_CHECKING:
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.values import HloValue, InstructionValueSet
    from hlomem.hlo.ir import HloInstruction


class HloBuffer(Struct, eq=False):
    """Values that must have the same offset. Compared by identity."""

    id: BufferId
    values: tuple[HloValue, ...]
    """By id."""

    def __repr__(self) -> str:
        return f"<buffer {self.id} {list(self.values)}>"


class Aliasing(Struct, frozen=True, eq=False):
    buffers: list[HloBuffer]
    buffer_of: dict[HloValue, HloBuffer]
    united: dict[HloValue, HloBuffer]
    live_out: set[HloBuffer]
    """The buffers of the entry computation's result."""


def analyze_aliasing(dataflow: Dataflow) -> Aliasing:
    """Find the values that must share a buffer."""
    buffers = _create_buffers(dataflow.values, _find_aliases(dataflow))
    buffer_of = {value: buffer for buffer in buffers for value in buffer.values}
    united = {value: buffer for value, buffer in buffer_of.items() if len(buffer.values) > 1}
    root = dataflow.module.entry.root
    live_out = {buffer_of[value] for part in dataflow.value_sets[root] for value in part}
    return Aliasing(buffers, buffer_of, united, live_out)


Aliases = defaultdict["HloValue", set["HloValue"]]
"""The other values that must share a value's buffer (`ComputeAliasedValues`)."""


def _find_aliases(dataflow: Dataflow) -> Aliases:
    aliases: Aliases = defaultdict(set)
    _alias_outputs(dataflow, aliases)
    sets = dataflow.value_sets
    bodies = dataflow.call_graph.bodies
    for instruction in sets:
        opcode = instruction.opcode
        if opcode == "while":
            _alias_loop(instruction, sets, aliases)
        elif opcode == "conditional":
            for branch in instruction.called_computations:
                _alias_parts(sets[branch.root], sets[instruction], aliases)
        elif opcode in MAY_WRITE_IN_PLACE:
            for pair in in_place_pairs(instruction, bodies):
                operand = instruction.operands[pair.operand_number]
                written = dataflow.value_set(operand, pair.operand_index)
                result = dataflow.value_set(instruction, pair.output_index)
                _alias_parts([written, result], [result, written], aliases)
    return aliases


def _alias_outputs(dataflow: Dataflow, aliases: Aliases) -> None:
    entry = dataflow.module.entry
    for alias in dataflow.module.input_output_alias:
        parameter = entry.parameters[alias.parameter_number]
        result = dataflow.value_set(entry.root, alias.output_index)
        _alias_parts([result], [dataflow.value_set(parameter, alias.parameter_index)], aliases)


def _alias_loop(
    loop: HloInstruction, sets: dict[HloInstruction, InstructionValueSet], aliases: Aliases
) -> None:
    """Alias a loop's operand, parameters, body result and own result."""
    carried = sets[loop]
    body, condition = loop.called_computations
    _alias_parts(sets[loop.operands[0]], carried, aliases)
    _alias_parts(sets[body.root], carried, aliases)
    for parameter in (body.parameters[0], condition.parameters[0]):
        own = [
            tuple(value for value in part if value.instruction is parameter)
            for part in sets[parameter]
        ]
        _alias_parts(own, carried, aliases)


def _alias_parts(values: InstructionValueSet, more: InstructionValueSet, aliases: Aliases) -> None:
    for part, other_part in zip(values, more, strict=True):
        for value in part:
            if other_part != (value,):
                aliases[value].update(other_part)


def _create_buffers(values: list[HloValue], aliases: Aliases) -> list[HloBuffer]:
    """Unite aliased values; a buffer is ordered by the value that represents its set.

    `CreateBuffers` of hlo_alias_analysis.cc: the largest set absorbs the others, among equal ones
    that of the smallest aliased value id.
    """
    members: dict[HloValue, list[HloValue]] = {}
    head_of: dict[HloValue, HloValue] = {}
    for value in sorted(aliases, key=attrgetter("id")):
        aliased = sorted(aliases[value] | {value}, key=attrgetter("id"))
        for member in aliased:
            if member not in head_of:
                head_of[member] = member
                members[member] = [member]
        largest = max(aliased, key=lambda member: (len(members[head_of[member]]), -member.id))
        head = head_of[largest]
        for absorbed in {head_of[value]: None for value in aliased if head_of[value] is not head}:
            head_of.update(dict.fromkeys(members[absorbed], head))
            members[head] += members[absorbed]
            members[absorbed] = []
    for united in members.values():
        united.sort(key=attrgetter("id"))
    groups = [tuple(members[value]) if value in members else (value,) for value in values]
    return [HloBuffer(BufferId(i), group) for i, group in enumerate(filter(None, groups))]
