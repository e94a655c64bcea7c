"""The get-tuple-elements that compact text (`%fusion#1`) omits, named and ordered as in a dump."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.rewrite import Rewriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.dump.dump import Dump
    from hlomem.dump.records import UsedValue, Values
    from hlomem.hlo.ir import HloInstruction, HloModule


def unnamed_elements(module: HloModule) -> list[HloInstruction]:
    """The get-tuple-elements a compact text implies, outside of fusions."""
    if not module.implies_elements:
        return []
    return [
        instruction
        for instruction in module.iter_outer_instructions()
        if instruction.opcode == "get-tuple-element" and not instruction.is_root
    ]


def expand(module: HloModule, dump: Dump) -> HloModule:
    """The module with explicit get-tuple-elements as in a dump of it, if its text is compact."""
    if not unnamed_elements(module) or dump.live_ranges is None or dump.values is None:
        return module
    time_of = {name: time for time, name in enumerate(dump.live_ranges.sequence)}
    name_of = _name_elements(module, dump.values, time_of)
    rewriter = Rewriter(module)
    for element, name in name_of.items():
        rewriter.rename(element, name)
    for computation in module.outer_computations:
        order = sorted(
            computation.instructions,
            key=lambda instruction: time_of.get(name_of.get(instruction, instruction.name), -1),
        )
        rewriter.reorder(computation, order)
    return rewriter.finish()


def _name_elements(
    module: HloModule, values: Values, time_of: Mapping[str, int]
) -> dict[HloInstruction, str]:
    """The names of the instructions that hold each element between its operand and its users."""
    elements = unnamed_elements(module)
    name_of: dict[HloInstruction, str] = {}
    value_at = {
        (position.instruction, position.index or ()): value
        for value in values.values
        for position in value.positions
    }
    implied = set(elements)
    taken = {
        instruction.name
        for instruction in module.iter_outer_instructions()
        if instruction not in implied
    }
    for element in elements:  # in the order of the text: operands are named first
        [whole] = element.operands
        of = name_of.get(whole, whole.name)
        value = value_at.get((of, (element.tuple_index,)))
        for name in [] if value is None else _holders(value, of, element, time_of):
            if name not in taken:
                name_of[element] = name
                taken.add(name)
                break
    return name_of


def _holders(
    value: UsedValue, operand: str, element: HloInstruction, time_of: Mapping[str, int]
) -> list[str]:
    """The instructions that hold a value at the top, after its operand and before its users."""
    start = time_of.get(operand, -1)
    ends = [time_of[user.name] for user in element.users if user.name in time_of]
    end = min(ends, default=len(time_of))
    return [
        position.instruction
        for position in value.positions
        if not position.index and start < time_of.get(position.instruction, -1) < end
    ]
