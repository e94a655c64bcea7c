"""A dump's values as the dataflow stage of a plan, with its ids, positions and uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.dataflow import Dataflow
from hlomem.analysis.list_order import ListOrder, listed_instructions
from hlomem.analysis.values import HloPosition, HloValue, UseFinder, part_number
from hlomem.base.quantities import ValueId
from hlomem.hlo.shape import ShapeIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.values import InstructionValueSet
    from hlomem.dump.records import UsedValue
    from hlomem.hlo.ir import HloInstruction

Instructions = dict[str, "HloInstruction"]


def recorded_dataflow(
    values: Sequence[UsedValue], call_graph: CallGraph, order: ListOrder
) -> Dataflow:
    by_name = {instruction.name: instruction for instruction in order.instructions}
    sets: dict[HloInstruction, InstructionValueSet] = {
        instruction: [()] * instruction.shape.parts.count for instruction in order.instructions
    }
    made = [_make_value(value, by_name) for value in values]
    for value in made:
        for instruction, index in value.positions:
            number = part_number(instruction.shape, index)
            sets[instruction][number] += (value,)
    use_finder = UseFinder(order.instructions, order.users)
    return Dataflow(call_graph.module, call_graph, order, made, sets, use_finder)


def _make_value(record: UsedValue, by_name: Instructions) -> HloValue:
    instruction, index = by_name[record.name], ShapeIndex(record.index or ())
    positions = [
        HloPosition(by_name[position.instruction], ShapeIndex(position.index or ()))
        for position in record.positions
    ]
    whole = instruction.shape
    shape = whole.parts.shapes[part_number(whole, index)]
    return HloValue(ValueId(record.id), instruction, index, shape, record.is_phi, positions)


def recorded_order(values: Sequence[UsedValue], call_graph: CallGraph) -> ListOrder:
    """The order of a rebuilt module's lists, with the dump's order of users."""
    instructions = listed_instructions(call_graph.module.computations, call_graph)
    by_name = {instruction.name: instruction for instruction in instructions}
    seen: dict[HloInstruction, set[tuple[HloInstruction, ...]]] = {}
    for value in values:
        for operand, readers in _users_seen(value, by_name):
            seen.setdefault(operand, set()).add(tuple(readers))
    users = {operand: _merged(lists, operand.users) for operand, lists in seen.items()}
    return ListOrder(call_graph.module.computations, instructions, users)


def _merged(
    lists: set[tuple[HloInstruction, ...]], users: list[HloInstruction]
) -> list[HloInstruction]:
    """All users in an order consistent with every list."""
    merged: list[HloInstruction] = []
    rank = {user: number for number, user in enumerate(users)}
    for listed in sorted(lists, key=lambda listed: (-len(listed), [rank[user] for user in listed])):
        position = 0
        for user in listed:
            if user in merged:
                position = merged.index(user) + 1
            else:
                merged.insert(position, user)
                position += 1
    return merged + [user for user in users if user not in merged]


def _users_seen(
    value: UsedValue, by_name: Instructions
) -> Iterator[tuple[HloInstruction, list[HloInstruction]]]:
    """The readers of a value at each of its positions, in order."""
    seen: dict[HloInstruction, dict[HloInstruction, None]] = {}
    for use in value.uses or ():
        user = by_name[use.instruction]
        seen.setdefault(user.operands[use.operand], {})[user] = None
    for operand, users in seen.items():
        yield operand, list(users)
