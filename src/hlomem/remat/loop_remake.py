"""The second body of a pair of loops, with values computed again that it had read from stacks.

In: a `LoopPlan` and the draft of the body. Out: the draft changed, the bodies of fusions that are
new or take other operands, and the new elements of the state. A reader of a dropped stack gets a
stack of the one slice that was computed for it: an index into that, whatever it is, is clamped to
its only place, so that the reader stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.shape import Shape, default_layout
from hlomem.remat.body_draft import BodyDraft
from hlomem.remat.loop_choice import inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.opcodes import Opcode
    from hlomem.remat.body_draft import Names, Wrapper
    from hlomem.remat.loop_choice import LoopPlan
    from hlomem.remat.loops import Loop, LoopPair, Stack


class LoopEditError(Exception):
    """A plan that cannot be carried out."""


def stacked(shape: Shape, count: int) -> Shape:
    """The shape of a stack of so many slices, each whole in memory."""
    layout = shape.layout or default_layout(len(shape.dimensions))
    order = (*[dimension + 1 for dimension in layout.minor_to_major], 0)
    return Shape(
        shape.element_type,
        (count, *shape.dimensions),
        (),
        layout._replace(minor_to_major=order, memory_space=default_layout(0).memory_space),
    )


def element_of(
    body: BodyDraft, name: str, whole: HloInstruction, shape: Shape, index: int
) -> HloInstruction:
    """An element of a tuple, in no list yet."""
    return body.make(name, shape, "get-tuple-element", [whole], attributes={"index": str(index)})


def find_counter(pair: LoopPair, loop: Loop) -> HloInstruction:
    """An integer of a body that counts its iterations, one that slices are found by."""
    for access in _accesses(pair, loop):
        for operand in access.operands:
            places = [tick.get(operand) for tick in loop.ticks]
            if places == list(range(len(places))):
                return operand
    raise LoopEditError("no integer of the loop counts its iterations")


def _accesses(pair: LoopPair, loop: Loop) -> list[HloInstruction]:
    if loop is pair.first:
        return [stack.write for stack in pair.stacks]
    return [read.instruction for stack in pair.stacks for read in stack.reads]


class Remaker:
    """The second body on its way."""

    def __init__(
        self,
        plan: LoopPlan,
        body: BodyDraft,
        names: Names,
        wrapper: Wrapper,
        kept: Mapping[HloInstruction, Stack],
    ) -> None:
        self._plan = plan
        self._pair = plan.pair
        self._first, self._second = plan.pair.first, plan.pair.second
        self._body = body
        self._names = names
        self._wrapper = wrapper
        self._kept = kept
        self._remade = frozenset(plan.remade)
        self._made: dict[HloInstruction, HloInstruction] = {}
        """By value of the first body, the same in the second."""
        self._stacks: dict[HloInstruction, HloInstruction] = {}
        """By stored value of the first body, its stack in the second."""
        self._pending: list[HloInstruction] = []
        self._counts: dict[tuple[int, ...], HloInstruction] = {}
        self.elements: list[HloInstruction] = []
        """New elements of the state, which go around unchanged."""
        self.callees: list[BodyDraft] = []
        """New bodies of fusions."""
        self.changed: dict[HloComputation, BodyDraft] = {}
        """Bodies of fusions that take slices now."""

    def run(self, new: Sequence[HloInstruction], shapes: Sequence[Shape]) -> list[HloInstruction]:
        """Change the body; the values outside the loops that it is given in addition."""
        for value, shape in zip(new, shapes, strict=True):
            self._stacks[value] = self._add_element("stack", shape)
        for value, stack in self._kept.items():
            element = self._second.elements[stack.later_index][0]
            self._stacks[value] = self._body.copy_of[element]
        outside = [
            self._first.initial.operands[value.tuple_index]
            for value in self._invariants()
            if not self._find_invariant(value)
        ]
        by_reader: dict[HloInstruction, list[Stack]] = {}
        for stack in self._plan.dropped:
            reader = min((read.instruction for read in stack.reads), key=lambda one: one.index)
            by_reader.setdefault(reader, []).append(stack)
        for reader in sorted(by_reader, key=lambda one: one.index):
            slices = [(stack, self._remake(stack)) for stack in by_reader[reader]]
            self._body.put_before(self._body.copy_of[reader], *self._pending)
            self._pending.clear()
            for stack, part in slices:
                self._redirect(stack, part)
        return outside

    # Values that are there.

    def _add_element(self, name: str, shape: Shape) -> HloInstruction:
        """An element behind those of the state."""
        parameter = self._body.copy_of[self._second.body.parameters[0]]
        index = len(self._second.initial.operands) - len(self._plan.dropped) + len(self.elements)
        element = element_of(self._body, self._names.new(name), parameter, shape, index)
        self._body.put_behind([parameter], element)
        self.elements.append(element)
        return element

    def _invariants(self) -> list[HloInstruction]:
        """Elements of the first state that do not change, and are needed."""
        needed = {operand for one in self._plan.remade for operand in one.operands}
        needed.update(operand for stack in self._plan.dropped for operand in inputs(stack))
        return [
            element
            for index, elements in sorted(self._first.elements.items())
            if self._first.is_invariant(index)
            for element in elements
            if element in needed and element not in self._first.ticks[0]
        ]

    def _find_invariant(self, value: HloInstruction) -> bool:
        """Find the element that is the same outside the loops, or add it; whether it was there."""
        outside = self._first.initial.operands[value.tuple_index]
        for index, given in enumerate(self._second.initial.operands):
            elements = self._second.elements.get(index)
            if given is outside and elements and self._second.is_invariant(index):
                self._made[value] = self._body.copy_of[elements[0]]
                return True
        self._made[value] = self._add_element(value.name, outside.shape)
        return False

    # Values that are made.

    def _remake(self, stack: Stack) -> HloInstruction:
        """The slice of a stack, computed again with all that it needs."""
        for value in self._needed(stack):
            if value not in self._made:
                self._made[value] = self._value(value)
        if not stack.is_fused:
            return self._made[stack.update]
        source = stack.source
        if source is not None:
            return self._emit(
                self._body.make(
                    self._names.new(stack.write.name),
                    stack.update.shape,
                    "bitcast",
                    [self._made[source]],
                )
            )
        return self._slice_fusion(stack)

    def _needed(self, stack: Stack) -> list[HloInstruction]:
        """Values of the first body behind a slice that are not there, in their order."""
        found: set[HloInstruction] = set()
        pending = inputs(stack)
        while pending:
            value = pending.pop()
            if value not in found:
                found.add(value)
                if value in self._remade:
                    pending += value.operands
        return sorted(found, key=lambda value: value.index)

    def _value(self, value: HloInstruction) -> HloInstruction:
        if all(value in tick for tick in self._first.ticks):
            return self._integer(value)
        if value in self._stacks:
            return self._read(value)
        return self._clone(value)

    def _emit(self, instruction: HloInstruction) -> HloInstruction:
        self._pending.append(instruction)
        return instruction

    def _clone(self, value: HloInstruction) -> HloInstruction:
        """The same instruction, on operands of the second body."""
        clone = self._body.make(
            self._names.new(value.name),
            value.shape,
            value.opcode,
            [self._made[operand] for operand in value.operands],
            payload=value.payload,
            attributes=value.attributes,
            called=[self._callee(one, value) for one in value.called_computations],
        )
        return self._emit(clone)

    def _callee(self, callee: HloComputation, caller: HloInstruction) -> HloComputation:
        """A body of its own for a fusion; what others apply is shared."""
        if caller.opcode != "fusion":
            return callee
        draft = BodyDraft(callee, self._names.new(callee.name))
        for instruction in draft.instructions:
            instruction.name = self._names.new(instruction.name)
            instruction.called_computations = tuple(
                [self._callee(inner, instruction) for inner in instruction.called_computations]
            )
        self.callees.append(draft)
        return draft.made

    def _integer(self, value: HloInstruction) -> HloInstruction:
        """An integer of the iteration that is gone through again."""
        wanted = [self._first.ticks[tick][value] for tick in self._pair.counterparts]
        return self._count(wanted, value.name)

    def _count(self, wanted: Sequence[int], name: str) -> HloInstruction:
        """Integers by iteration, made of this loop's counter."""
        counter = self._body.copy_of[find_counter(self._pair, self._second)]
        key = tuple(wanted)
        if key not in self._counts:
            self._counts[key] = self._new_count(key, name, counter)
        return self._counts[key]

    def _new_count(
        self, wanted: tuple[int, ...], name: str, counter: HloInstruction
    ) -> HloInstruction:
        start = wanted[0]
        if len(set(wanted)) == 1:
            return self._constant(counter.shape, start)
        steps: tuple[tuple[int, Opcode], ...] = ((1, "add"), (-1, "subtract"))
        for step, opcode in steps:
            if list(wanted) == [start + step * tick for tick in range(len(wanted))]:
                made = self._wrapper.wrap(self._body, name, counter.shape, opcode, [start, counter])
                return self._emit(made)
        raise LoopEditError(f"{name} does not go up or down by one")

    def _constant(self, shape: Shape, number: int) -> HloInstruction:
        name = self._names.new("constant")
        return self._emit(self._body.make(name, shape, "constant", payload=str(number)))

    def _read(self, value: HloInstruction) -> HloInstruction:
        """The slice of a stored value, in the value's own shape."""
        stack = self._stacks[value]
        part = stacked(value.shape, 1)
        kept = self._kept.get(value)
        if kept is not None:
            part = kept.update.shape
        place = self._place(value)
        sizes = ",".join(map(str, part.dimensions))
        read = self._emit(
            self._wrapper.wrap(
                self._body,
                f"{value.name}.slice",
                part,
                "dynamic-slice",
                [stack, place, *[0] * (len(part.dimensions) - 1)],
                {"dynamic_slice_sizes": f"{{{sizes}}}"},
            )
        )
        name = self._names.new(value.name)
        return self._emit(self._body.make(name, value.shape, "bitcast", [read]))

    def _place(self, value: HloInstruction) -> HloInstruction:
        """The place of the slice of a stored value in its stack."""
        kept = self._kept.get(value)
        if kept is None:
            wanted = list(self._pair.counterparts)
        else:
            wanted = [kept.places[tick] for tick in self._pair.counterparts]
        return self._count(wanted, value.name)

    def _slice_fusion(self, stack: Stack) -> HloInstruction:
        """The fusion that wrote a stack, ending in the slice."""
        body = stack.update.parent
        draft = BodyDraft(body, self._names.new(body.name))
        draft.root = draft.copy_of[stack.update]
        operands = dict(zip(body.parameters, stack.write.operands, strict=True))
        draft.drop_dead(lambda _: True)
        parameters = [one for one in body.parameters if draft.copy_of[one] in draft.instructions]
        for number, parameter in enumerate(parameters):
            draft.copy_of[parameter].payload = str(number)
        for instruction in draft.instructions:
            instruction.name = self._names.new(instruction.name)
            instruction.called_computations = tuple(
                [self._callee(inner, instruction) for inner in instruction.called_computations]
            )
        self.callees.append(draft)
        attributes = dict(stack.write.attributes)
        attributes.pop("backend_config", None)
        attributes.pop("output_to_operand_aliasing", None)
        fusion = self._body.make(
            self._names.new(stack.write.name),
            stack.update.shape,
            "fusion",
            [self._made[operands[parameter]] for parameter in parameters],
            attributes=attributes,
            called=[draft.made],
        )
        return self._emit(fusion)

    # Readers.

    def _redirect(self, stack: Stack, part: HloInstruction) -> None:
        """Let all readers of a stack read the slice instead."""
        for read in dict.fromkeys(stack.reads):
            reader = self._body.copy_of[read.instruction]
            operands = list(reader.operands)
            operands[read.number] = part
            reader.operands = tuple(operands)
            if read.instruction.opcode == "fusion":
                [callee] = read.instruction.called_computations
                draft = self.changed.setdefault(callee, BodyDraft(callee))
                draft.copy_of[callee.parameters[read.number]].shape = part.shape
