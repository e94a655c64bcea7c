"""Step 2 of dataflow analysis: values are forwarded and merged until a fixed point.

Mirrors `HloDataflowAnalysis::Propagate`, `Phi` and `UpdateParameterValueSet`
(`hlo/analysis/hlo_dataflow_analysis.cc`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from hlomem.analysis.async_chain import async_chain, bound_operands, is_carried, wrapped_computation
from hlomem.analysis.forwarding import FORWARD, FORWARD_IN_PLACE
from hlomem.analysis.phi import PhiGraph
from hlomem.analysis.values import HloValue, InstructionValueSet, part_number
from hlomem.hlo.ir import HloComputation, HloInstruction
from hlomem.hlo.opcodes import ASYNC_OPCODES, MERGING, RUN_IN_PLACE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.definition import ValueTable
    from hlomem.base.quantities import ValueId


class Propagation:
    """The fixed point over one table of values."""

    def __init__(
        self, table: ValueTable, call_graph: CallGraph, *, updates_in_place: bool = False
    ) -> None:
        self._forward = FORWARD_IN_PLACE if updates_in_place else FORWARD
        self._table = table
        self._sets = table.sets
        self._call_graph = call_graph
        self.phis = PhiGraph()
        self.dead: set[ValueId] = set()
        """Phis that turned out to merge nothing."""
        self.receivers: dict[HloInstruction, int] = {}
        """The instructions that may receive values from others, by priority."""

    def run(self) -> None:
        """Reach the fixed point (`HloDataflowAnalysis::Propagate`), the earliest pending first."""
        schedule = self._priorities()
        rank = self.receivers
        rank.update(zip(schedule, range(len(schedule)), strict=True))
        waiting = [True] * len(schedule)
        queue = list(range(len(schedule)))
        heapify(queue)
        while queue:
            priority = heappop(queue)
            instruction = schedule[priority]
            waiting[priority] = False
            if self._update(instruction):
                for dependent in self._dependents(instruction):
                    i = rank.get(dependent)
                    if i is not None and not waiting[i]:
                        waiting[i] = True
                        heappush(queue, i)

    def _priorities(self) -> list[HloInstruction]:
        """Forwarding instructions as by `CalculatePostOrderSchedule`, conditions before bodies."""
        schedule: dict[HloInstruction, None] = {}
        passing = {
            computation: self._passing(computation) for computation in self._table.post_orders
        }
        for computation, instructions in passing.items():
            if self._call_graph.is_embedded(computation):
                schedule.update(dict.fromkeys(instructions))
        walked: set[HloComputation] = set()
        pending: list[HloComputation | HloInstruction] = [self._call_graph.module.entry]
        while pending:
            item = pending.pop()
            if isinstance(item, HloInstruction):
                schedule.setdefault(item)
                continue
            if item in walked:
                continue
            walked.add(item)
            for instruction in reversed(passing[item]):
                pending.append(instruction)
                if instruction.opcode in RUN_IN_PLACE:
                    callees = instruction.called_computations
                    # Popped in reverse: a while's condition, which XLA keeps last, comes first.
                    pending += callees if instruction.opcode == "while" else reversed(callees)
        return list(schedule)

    def _passing(self, computation: HloComputation) -> list[HloInstruction]:
        """The instructions that receive values; no parameters of embedded computations do."""
        post_order, receiving = self._table.post_orders[computation], _MAY_HOLD_OTHERS_INSIDE
        if not self._call_graph.is_embedded(computation):
            sites = self._call_graph.callsites[computation]
            if not RUN_IN_PLACE.isdisjoint([site.opcode for site in sites]):
                receiving = MAY_HOLD_OTHERS
        return [
            instruction
            for instruction in post_order
            if (opcode := instruction.opcode) in receiving
            and (opcode != "copy" or instruction.shape.is_tuple)
        ]

    def _update(self, instruction: HloInstruction) -> bool:
        opcode = instruction.opcode
        if opcode == "parameter":
            return self._update_parameter(instruction)
        if opcode == "while":
            body = instruction.called_computations[0]
            return self._merge(instruction, (body.root, instruction.operands[0]))
        if opcode == "conditional":
            return self._merge(
                instruction, [callee.root for callee in instruction.called_computations]
            )
        return self._store(instruction, self._forward[opcode](instruction, self._sets))

    def _store(self, instruction: HloInstruction, value_set: InstructionValueSet) -> bool:
        if value_set == self._sets[instruction]:
            return False
        self._sets[instruction] = value_set
        return True

    def _update_parameter(self, parameter: HloInstruction) -> bool:
        computation = parameter.parent
        inputs: list[HloInstruction] = []
        merges = False
        for site in self._call_graph.callsites[computation]:
            merges |= site.opcode in MERGING
            inputs += _arguments(site, parameter)
        if merges:
            return self._merge(parameter, inputs)
        return bool(inputs) and self._store(parameter, self._union(inputs))

    def _union(self, inputs: Sequence[HloInstruction]) -> InstructionValueSet:
        if len(inputs) == 1:
            return self._sets[inputs[0]]
        union: InstructionValueSet = []
        for parts in zip(*(self._sets[source] for source in inputs), strict=True):
            by_id = {value.id: value for part in parts for value in part}
            union.append(tuple(by_id[value_id] for value_id in sorted(by_id)))
        return union

    def _merge(self, instruction: HloInstruction, inputs: Sequence[HloInstruction]) -> bool:
        """Merge the values of several instructions (`HloDataflowAnalysis::Phi`)."""
        current = self._sets[instruction]
        merged = current[:]
        input_sets = [self._sets[source] for source in inputs]
        changed = False
        for number, here in enumerate(current):
            arriving = [value for input_set in input_sets for value in input_set[number]]
            value = self._merge_part(instruction, number, here[0] if here else None, arriving)
            if value is not None:
                merged[number] = (value,)
                changed = True
        self._sets[instruction] = merged
        return changed

    def _merge_part(
        self,
        instruction: HloInstruction,
        number: int,
        current: HloValue | None,
        arriving: list[HloValue],
    ) -> HloValue | None:
        """The new value of a part; None if it is unchanged."""
        is_own = (
            current is not None
            and current.instruction is instruction
            and part_number(instruction.shape, current.index) == number
        )
        if len(arriving) < 2:
            if not arriving or arriving[0] is current:
                return None
            if is_own and current is not None:
                self.dead.add(current.id)
            return arriving[0]
        # The same value may arrive twice; such phis are removed at the end.
        ids = [value.id for value in arriving]
        if is_own and current is not None and current.is_phi:
            if self.phis.inputs_equal(current.id, ids):
                return None
            self.phis.register(current.id, ids)
            return current
        phi = self._table.new_value(instruction, number, is_phi=True)
        self.phis.register(phi.id, ids)
        return phi

    def _dependents(self, instruction: HloInstruction) -> Iterator[HloInstruction]:
        """The instructions whose values may change with those of an instruction."""
        for user in instruction.users:
            yield user
            if user.opcode in _PASS_ARGUMENTS:
                yield from _bound_parameters(user, instruction)
        if instruction.is_root:
            for site in self._call_graph.callsites[instruction.parent]:
                yield site
                if site.opcode == "while":
                    yield from (callee.parameters[0] for callee in site.called_computations)
                elif site.opcode == "async-start":
                    yield from async_chain(site)


def _arguments(site: HloInstruction, parameter: HloInstruction) -> list[HloInstruction]:
    """The arguments of a parameter; for a loop also its body's result."""
    number = parameter.parameter_number
    if site.opcode == "while":
        root = site.called_computations[0].root
        return [site.operands[0]] if root is parameter else [site.operands[0], root]
    if site.opcode == "conditional":
        return [site.operands[site.called_computations.index(parameter.parent) + 1]]
    if site.opcode == "call":
        return [site.operands[number]]
    if site.opcode == "async-start":
        return list(bound_operands(async_chain(site)[-1])[number : number + 1])
    return []


def _bound_parameters(user: HloInstruction, operand: HloInstruction) -> Iterator[HloInstruction]:
    """The parameters of a user's callees that may be bound to an operand."""
    if is_carried(user):
        return
    if user.opcode in ASYNC_OPCODES:
        yield from wrapped_computation(user).parameters
    elif user.opcode == "conditional":
        for branch, argument in zip(user.called_computations, user.operands[1:], strict=True):
            if argument is operand:
                yield branch.parameters[0]
    else:
        numbers = [number for number, other in enumerate(user.operands) if other is operand]
        for callee in user.called_computations:
            yield from (callee.parameters[number] for number in numbers)


_PASS_ARGUMENTS = RUN_IN_PLACE | ASYNC_OPCODES
MAY_HOLD_OTHERS = MERGING | frozenset(FORWARD)
"""Opcodes whose results may hold values of other instructions."""
_MAY_HOLD_OTHERS_INSIDE = MAY_HOLD_OTHERS - {"parameter"}
"""`MAY_HOLD_OTHERS` in a computation whose parameters are not bound."""
