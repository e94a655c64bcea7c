"""Module → values: the contents of every part of every result.

Mirrors `hlo/analysis/hlo_dataflow_analysis.cc` in SSA form, with bitcasts that define nothing. Ids
number the definitions of one computation after the other (`definition`), then the phis as the fixed
point creates them (`propagation`). Dropping redundant phis leaves gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.analysis.definition import ValueTable, define_values
from hlomem.analysis.propagation import Propagation
from hlomem.analysis.values import HloPosition, UseFinder, part_number
from hlomem.base.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Container

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.list_order import ListOrder
    from hlomem.analysis.values import HloValue, InstructionValueSet, ValueSet
    from hlomem.base.quantities import ValueId
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.hlo.shape import ShapeIndex


class Dataflow(Struct, frozen=True, eq=False):
    module: HloModule
    call_graph: CallGraph
    order: ListOrder
    values: list[HloValue]
    """By id."""
    value_sets: dict[HloInstruction, InstructionValueSet]
    """The values in the parts of each result outside fusions."""
    use_finder: UseFinder

    def value_set(self, instruction: HloInstruction, index: ShapeIndex) -> ValueSet:
        """The values a part of a result may hold."""
        return self.value_sets[instruction][part_number(instruction.shape, index)]


def analyze_dataflow(
    module: HloModule, call_graph: CallGraph, order: ListOrder, *, updates_in_place: bool = False
) -> Dataflow:
    """Find the values of a module; `updates_in_place` is `Options.async_updates_in_place`."""
    table = define_values(order.computations, call_graph)
    propagation = Propagation(table, call_graph, updates_in_place=updates_in_place)
    propagation.run()
    replacement = propagation.phis.optimize()
    if replacement:
        _replace_phis(table, replacement)
    for value_id in propagation.dead | replacement.keys():
        table.values.pop(value_id, None)
    _refuse_many_positions(table, call_graph)
    _add_positions(table, order, propagation.receivers)
    use_finder = UseFinder(order.instructions, order.users)
    return Dataflow(module, call_graph, order, list(table.values.values()), table.sets, use_finder)


def _replace_phis(table: ValueTable, replacement: dict[ValueId, ValueId]) -> None:
    values = table.values
    for instruction, value_set in table.sets.items():
        if not any(value.id in replacement for part in value_set for value in part):
            continue
        table.sets[instruction] = [
            tuple(
                {
                    value.id: value
                    for value in (values[replacement.get(old.id, old.id)] for old in part)
                }.values()
            )
            for part in value_set
        ]


def _refuse_many_positions(table: ValueTable, call_graph: CallGraph) -> None:
    """Refuse n callers of a computation with n instructions: a dump would list n² positions."""
    most_called = max(
        table.post_orders, key=lambda computation: len(call_graph.callsites[computation])
    )
    if len(call_graph.callsites[most_called]) < 2:
        return
    part_count = sum(map(len, table.sets.values()))
    position_count = sum(len(part) for parts in table.sets.values() for part in parts)
    if position_count > _FREE_POSITIONS + _MAX_VALUES * part_count:
        problem = f"the calls of `{most_called.name}` put values at {position_count} positions"
        raise most_called.root.error(problem, kind=UnsupportedError)


_FREE_POSITIONS = 1_000_000
_MAX_VALUES = 20
"""Average number of values per part of a result, far above that of real programs."""


def _add_positions(
    table: ValueTable, order: ListOrder, receivers: Container[HloInstruction]
) -> None:
    """Give every value the positions other than its definition."""
    for instruction in order.instructions:
        if instruction not in receivers:
            continue
        for number, part in enumerate(table.sets[instruction]):
            for value in part:
                if value.instruction is not instruction:
                    index = instruction.shape.parts.indices[number]
                    value.positions.append(HloPosition(instruction, index))
