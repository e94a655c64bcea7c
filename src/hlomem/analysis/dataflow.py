"""Module → values: what every part of every result holds.

In: a module and the order in which XLA visits its computations. Out: the values with their ids,
and for each instruction the values of all parts of its result. Mirrors
`hlo/analysis/hlo_dataflow_analysis.cc` in SSA form, with bitcasts that define nothing.

Ids are given in four steps, whose order is the order of the ids: every definition, computation by
computation; phis, as the fixed point finds that values meet; then needless phis are dropped, which
leaves holes. Values inside fusions take ids, too, and are never looked at; their bodies are only
counted.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.analysis.async_chain import (
    async_chain,
    bound_operands,
    is_modelled,
    wrapped_computation,
)
from hlomem.analysis.defined_parts import NOTHING, SPECIAL_OPCODES, defined_parts
from hlomem.analysis.forwarding import FORWARD, FORWARD_TUPLE_COPY
from hlomem.analysis.phi import PhiGraph
from hlomem.analysis.values import HloPosition, HloValue, UseFinder, ValueId, part_number
from hlomem.base.errors import UnsupportedError
from hlomem.hlo.ir import HloInstruction
from hlomem.hlo.opcodes import ASYNC_OPCODES, RUN_IN_PLACE
from hlomem.hlo.shape import ROOT_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.list_order import ListOrder
    from hlomem.analysis.values import InstructionValueSet, ValueSet
    from hlomem.hlo.ir import HloComputation, HloModule
    from hlomem.hlo.shape import ShapeIndex


class Dataflow(Struct, frozen=True, eq=False):
    """The values of a module."""

    module: HloModule
    call_graph: CallGraph
    order: ListOrder
    values: list[HloValue]
    """Every value that is left, by id."""
    value_sets: dict[HloInstruction, InstructionValueSet]
    """What the parts of each result hold; the bodies of fusions are left out."""
    use_finder: UseFinder
    """Who reads the values."""

    def value_set(self, instruction: HloInstruction, index: ShapeIndex) -> ValueSet:
        """The values a part of a result may hold."""
        return self.value_sets[instruction][part_number(instruction.shape, index)]


def analyze_dataflow(module: HloModule, call_graph: CallGraph, order: ListOrder) -> Dataflow:
    """Find the values of a module."""
    analysis = _Analysis(module, call_graph, order)
    analysis.define()
    analysis.propagate()
    values = analysis.finish()
    use_finder = UseFinder(order.instructions, order.users)
    return Dataflow(module, call_graph, order, values, analysis.sets, use_finder)


class _Analysis:
    def __init__(self, module: HloModule, call_graph: CallGraph, order: ListOrder) -> None:
        self.module = module
        self.call_graph = call_graph
        self.order = order
        self.sets: dict[HloInstruction, InstructionValueSet] = {}
        self._values: dict[ValueId, HloValue] = {}
        self._next_id = 0
        self._post_orders: dict[HloComputation, list[HloInstruction]] = {}
        self._phis = PhiGraph()
        self._dead: set[ValueId] = set()

    # Step 1: definitions.

    def define(self) -> None:
        """Give every part that an instruction defines a value."""
        for computation in self.order.computations:
            if self.call_graph.is_fused(computation):
                self._next_id += self.call_graph.bodies[computation].value_count
                continue
            has_own_parameters = self.call_graph.is_embedded(
                computation
            ) or not self.call_graph.is_called(computation)
            post_order = self._post_orders[computation] = self.call_graph.post_order(computation)
            for instruction in post_order:
                opcode = instruction.opcode
                if opcode == "parameter" and not has_own_parameters:
                    self.sets[instruction] = [()] * instruction.shape.parts.count
                elif opcode in SPECIAL_OPCODES or instruction.shape.is_tuple:
                    self._define_parts(instruction)
                elif opcode in NOTHING:
                    self.sets[instruction] = [()]
                else:
                    self._define_array(instruction)

    def _define_array(self, instruction: HloInstruction) -> None:
        """The one value of most instructions."""
        value_id = ValueId(self._next_id)
        positions = [HloPosition._make((instruction, ROOT_INDEX))]  # faster than its constructor
        value = HloValue(value_id, instruction, ROOT_INDEX, instruction.shape, False, positions)
        self._values[value_id] = value
        self._next_id += 1
        self.sets[instruction] = [(value,)]

    def _define_parts(self, instruction: HloInstruction) -> None:
        opcode = instruction.opcode
        if opcode in ASYNC_OPCODES and not is_modelled(instruction):
            problem = f"an `{opcode}` of this form, or so far from its start, is not modelled"
            raise instruction.error(problem, kind=UnsupportedError)
        value_set: InstructionValueSet = [()] * instruction.shape.parts.count
        for number in defined_parts(instruction):
            value_set[number] = (self._new_value(instruction, number),)
        self.sets[instruction] = value_set

    def _new_value(
        self, instruction: HloInstruction, number: int, *, is_phi: bool = False
    ) -> HloValue:
        parts, value_id = instruction.shape.parts, ValueId(self._next_id)
        index = parts.indices[number]
        positions = [HloPosition(instruction, index)]
        value = HloValue(value_id, instruction, index, parts.shapes[number], is_phi, positions)
        self._values[value_id] = value
        self._next_id += 1
        return value

    # Step 2: the fixed point.

    def propagate(self) -> None:
        """Pass values on until nothing changes (`HloDataflowAnalysis::Propagate`).

        The instruction that comes first in the order of execution is always next, so that phis are
        found in XLA's order.
        """
        schedule = self._priorities()
        rank = {instruction: i for i, instruction in enumerate(schedule)}
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
        """What passes values on, in the order of `CalculatePostOrderSchedule`; embedded code first.

        A loop's condition comes before its body, both before the loop.
        """
        schedule: dict[HloInstruction, None] = {}
        passing = {each: self._passing(each) for each in self._post_orders}
        for computation, instructions in passing.items():
            if self.call_graph.is_embedded(computation):
                schedule.update(dict.fromkeys(instructions))
        walked: set[HloComputation] = set()
        pending: list[HloComputation | HloInstruction] = [self.module.entry]
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
        """The instructions of a computation that values come to from elsewhere.

        Nothing comes to the parameters of what runs inside one operation, even if a call in there
        passes it on.
        """
        sites = self.call_graph.callsites[computation]
        is_bound = not self.call_graph.is_embedded(computation) and not RUN_IN_PLACE.isdisjoint(
            [site.opcode for site in sites]
        )
        return [
            each
            for each in self._post_orders[computation]
            if (opcode := each.opcode) in _MAY_HOLD_OTHERS
            and (is_bound or opcode != "parameter")
            and (opcode != "copy" or each.shape.is_tuple)
        ]

    def _update(self, instruction: HloInstruction) -> bool:
        opcode = instruction.opcode
        if opcode == "parameter":
            return self._update_parameter(instruction)
        if opcode == "while":
            body = instruction.called_computations[0]
            return self._merge(instruction, (body.root, instruction.operands[0]))
        if opcode == "conditional":
            return self._merge(instruction, [each.root for each in instruction.called_computations])
        forward = FORWARD.get(opcode, FORWARD_TUPLE_COPY)
        return self._store(instruction, forward(instruction, self.sets))

    def _store(self, instruction: HloInstruction, value_set: InstructionValueSet) -> bool:
        if value_set == self.sets[instruction]:
            return False
        self.sets[instruction] = value_set
        return True

    def _update_parameter(self, parameter: HloInstruction) -> bool:
        computation = parameter.parent
        inputs: list[HloInstruction] = []
        merges = False
        for site in self.call_graph.callsites[computation]:
            if site.opcode == "while":
                inputs.append(site.operands[0])
                root = site.called_computations[0].root
                if root is not parameter:
                    inputs.append(root)
                merges = True
            elif site.opcode == "conditional":
                branch = site.called_computations.index(computation)
                inputs.append(site.operands[branch + 1])
                merges = True
            elif site.opcode == "call":
                inputs.append(site.operands[parameter.parameter_number])
            elif site.opcode == "async-start":
                operands = bound_operands(async_chain(site)[-1])
                if parameter.parameter_number < len(operands):
                    inputs.append(operands[parameter.parameter_number])
        if merges:
            return self._merge(parameter, inputs)
        return bool(inputs) and self._store(parameter, self._union(inputs))

    def _union(self, inputs: Sequence[HloInstruction]) -> InstructionValueSet:
        if len(inputs) == 1:
            return self.sets[inputs[0]]
        union: InstructionValueSet = []
        for parts in zip(*(self.sets[each] for each in inputs), strict=True):
            by_id = {value.id: value for part in parts for value in part}
            union.append(tuple(by_id[value_id] for value_id in sorted(by_id)))
        return union

    def _merge(self, instruction: HloInstruction, inputs: Sequence[HloInstruction]) -> bool:
        """Let the values of several instructions meet (`HloDataflowAnalysis::Phi`)."""
        current = self.sets[instruction]
        merged = current[:]
        input_sets = [self.sets[each] for each in inputs]
        changed = False
        for number, here in enumerate(current):
            arriving = [value for input_set in input_sets for value in input_set[number]]
            value = self._merge_part(instruction, number, here[0] if here else None, arriving)
            if value is not None:
                merged[number] = (value,)
                changed = True
        self.sets[instruction] = merged
        return changed

    def _merge_part(
        self,
        instruction: HloInstruction,
        number: int,
        current: HloValue | None,
        arriving: list[HloValue],
    ) -> HloValue | None:
        """The value a part holds now, None if nothing about it is new."""
        is_own = (
            current is not None
            and current.instruction is instruction
            and part_number(instruction.shape, current.index) == number
        )
        if len(arriving) < 2:
            if not arriving or arriving[0] is current:
                return None
            if is_own and current is not None:
                self._dead.add(current.id)
            return arriving[0]
        # The same value may arrive twice; that it needs no phi is found out at the end.
        ids = [value.id for value in arriving]
        if is_own and current is not None and current.is_phi:
            if self._phis.inputs_equal(current.id, ids):
                return None
            self._phis.register(current.id, ids)
            return current
        phi = self._new_value(instruction, number, is_phi=True)
        self._phis.register(phi.id, ids)
        return phi

    def _dependents(self, instruction: HloInstruction) -> Iterable[HloInstruction]:
        """What may change when the values of an instruction have."""
        for user in instruction.users:
            yield user
            if user.opcode == "conditional":
                for branch, operand in zip(
                    user.called_computations, user.operands[1:], strict=True
                ):
                    if operand is instruction:
                        yield branch.parameters[0]
            elif user.opcode in ASYNC_OPCODES:
                yield from wrapped_computation(user).parameters
            elif user.opcode in RUN_IN_PLACE:
                for callee in user.called_computations:
                    for number, operand in enumerate(user.operands):
                        if operand is instruction:
                            yield callee.parameters[number]
        if not instruction.is_root:
            return
        for site in self.call_graph.callsites[instruction.parent]:
            yield site
            if site.opcode == "while":
                for callee in site.called_computations:
                    yield callee.parameters[0]
            elif site.opcode == "async-start":
                yield from async_chain(site)

    # Step 3: what is left.

    def finish(self) -> list[HloValue]:
        """Drop needless phis and tell every value where it appears."""
        replacement = self._phis.optimize()
        if replacement:
            self._replace(replacement)
        for value_id in self._dead:
            self._values.pop(value_id, None)
        self._refuse_many_positions()
        self._set_positions()
        return list(self._values.values())

    def _refuse_many_positions(self) -> None:
        """Only where a computation has several callers may a part hold several values.

        n callers of a computation with n instructions make n² positions, all of which a dump lists.
        """
        most_called = max(self._post_orders, key=lambda each: len(self.call_graph.callsites[each]))
        if len(self.call_graph.callsites[most_called]) < 2:
            return
        part_count = sum(map(len, self.sets.values()))
        position_count = sum(len(part) for parts in self.sets.values() for part in parts)
        if position_count > _FREE_POSITIONS + _MOST_VALUES * part_count:
            problem = f"the calls of `{most_called.name}` put values at {position_count} positions"
            raise most_called.root.error(problem, kind=UnsupportedError)

    def _replace(self, replacement: dict[ValueId, ValueId]) -> None:
        values = self._values
        for instruction, value_set in self.sets.items():
            if not any(value.id in replacement for part in value_set for value in part):
                continue
            self.sets[instruction] = [
                tuple(
                    {
                        each.id: each
                        for each in (values[replacement.get(v.id, v.id)] for v in part)
                    }.values()
                )
                for part in value_set
            ]
        self._dead.update(replacement)

    def _set_positions(self) -> None:
        sets = self.sets
        for instruction in self.order.instructions:
            if instruction.opcode not in _MAY_HOLD_OTHERS:
                continue
            for number, part in enumerate(sets.get(instruction, ())):
                for value in part:
                    if value.instruction is not instruction:
                        index = instruction.shape.parts.indices[number]
                        value.positions.append(HloPosition(instruction, index))


_FREE_POSITIONS = 1_000_000
_MOST_VALUES = 20
"""Of a part of a result, on average, above the positions any program may have."""

_MERGING = frozenset({"parameter", "while", "conditional"})
_MAY_HOLD_OTHERS = _MERGING | frozenset(FORWARD) | {"copy"}
"""Opcodes whose results may hold values of other instructions."""
