"""The second body of a pair of loops, which recomputes values that it had read from stacks.

A reader of a dropped stack gets the slice that was computed for it (`fusion_edit.py`). What several
stacks of one fusion held is recomputed by one fusion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hlomem.base.errors import EditError
from hlomem.hlo.shape import Shape, tuple_shape
from hlomem.hlo.text.body import CONTROL_PREDECESSORS
from hlomem.opt.loops.choice import BodyValues, LoopPlan, repeated_by
from hlomem.opt.loops.fusion_edit import FusionEdits, LoopDraft, fitting_attributes
from hlomem.opt.loops.stacks import fusion_of, narrowed, stacked
from hlomem.opt.remat.edit import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.body_draft import Draft
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.opcodes import Opcode
    from hlomem.opt.loops.pairs import Loop, Stack

Copies: TypeAlias = "Mapping[HloInstruction, HloInstruction]"
Root: TypeAlias = "HloInstruction | Stack"
"""A value that is needed of a fusion, or a stack that narrows it."""


_LOADING = ("kLoop", "kInput")
"""Kinds of fusions that may read slices of what they are given."""


def slice_sizes(part: Shape) -> dict[str, str]:
    return {"dynamic_slice_sizes": f"{{{','.join(map(str, part.dimensions))}}}"}


def find_counter(loop: Loop) -> HloInstruction:
    """The integer of a body that counts its iterations and is read until last."""
    counting = [
        value
        for value in loop.ticks[0]
        if value.parent is loop.body
        and [tick.get(value) for tick in loop.ticks] == list(range(len(loop.ticks)))
    ]
    if not counting:
        raise EditError("no integer of the loop counts its iterations")
    return max(counting, key=lambda value: max([user.index for user in value.users], default=-1))


def step_of(numbers: Sequence[int]) -> int | None:
    """By how much numbers grow from one to the next, if by one, nothing, or less one."""
    start = numbers[0]
    for step in (0, 1, -1):
        if all(number == start + step * place for place, number in enumerate(numbers)):
            return step
    return None


def make_count(
    draft: LoopDraft, body: Draft, counter: HloInstruction, line: tuple[int, int], name: str
) -> HloInstruction:
    """An integer of a body that begins with a number and grows by a step, of one that counts."""
    start, step = line
    if not step:
        return body.make(draft.new("constant"), counter.shape, "constant", payload=str(start))
    opcode: Opcode = "add" if step > 0 else "subtract"
    return draft.wrap(body, name, counter.shape, opcode, [start, counter])


class Remaker:
    def __init__(
        self,
        plan: LoopPlan,
        body: Draft,
        draft: LoopDraft,
        kept: Mapping[HloInstruction, Stack],
        fusions: FusionEdits,
    ) -> None:
        self._plan = plan
        self._pair = plan.pair
        self._first, self._second = plan.pair.first, plan.pair.second
        self._body = body
        self._draft = draft
        self._kept = kept
        self._fusions = fusions
        self._values = BodyValues(plan.pair)
        self._remade = frozenset(plan.remade)
        self._made: dict[HloInstruction, HloInstruction] = {}
        """By value of the first body, the same in the second."""
        self._stacks: dict[HloInstruction, HloInstruction] = {}
        """By stored value of the first body, its stack in the second."""
        self._places: dict[HloInstruction, HloInstruction] = {}
        """By stored value that is read: the index of its slice."""
        self._narrowed: dict[Stack, HloInstruction] = {}
        """By stack of another type than its value: the slice as the stack held it."""
        self._roots = self._find_roots()
        self._pending: list[HloInstruction] = []
        self._counts: dict[tuple[int, ...], HloInstruction] = {}
        self.elements: list[HloInstruction] = []
        """New elements of the state, which go around unchanged."""

    def run(self, new: Sequence[HloInstruction], shapes: Sequence[Shape]) -> list[HloInstruction]:
        """Change the body; the values outside the loops that it is given in addition."""
        for value, shape in zip(new, shapes, strict=True):
            self._stacks[value] = self._add_element("stack", shape)
        for value, stack in self._kept.items():
            element = self._second.elements[stack.later_index][0]
            self._stacks[value] = self._draft.instruction(element)
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
            self._put_before(self._draft.instruction(reader))
            for stack, part in slices:
                for read in stack.reads:
                    self._fusions.feed(self._body, read.instruction, read.number, part)
        return outside

    def _put_before(self, reader: HloInstruction) -> None:
        """Put what was made before a reader; elements of the state that it reads go up."""
        body = self._body
        later = set(body.instructions[body.position(reader) :])
        for needed in dict.fromkeys(operand for one in self._pending for operand in one.operands):
            is_element = needed in later and needed.opcode == "get-tuple-element"
            if is_element and needed.operands[0].opcode == "parameter":
                body.instructions.remove(needed)
                body.put_after(needed.operands, needed)
        body.put_before(reader, *self._pending)
        self._pending.clear()

    def _find_roots(self) -> dict[HloInstruction, list[Root]]:
        """By fusion that is looked into: what is needed of it, stacks where they narrow a value."""
        found: dict[HloInstruction, list[Root]] = {}
        for stack in self._plan.dropped:
            owner = self._values.owner(stack.value)
            if owner is not None and stack.value in self._remade:
                found.setdefault(owner, []).append(stack.value if stack.is_exact else stack)
        for value in self._plan.remade:
            if self._values.is_result(value):
                result = self._values.result(value)
                owner = self._values.owner(result)
                if owner is not None and result in self._remade:
                    found.setdefault(owner, []).append(result)
        return {owner: list(dict.fromkeys(roots)) for owner, roots in found.items()}

    # Values that are there.

    def _add_element(self, name: str, shape: Shape) -> HloInstruction:
        """A further element, after those of the state."""
        parameter = self._draft.instruction(self._second.body.parameters[0])
        index = len(self._second.initial.operands) - len(self._plan.dropped) + len(self.elements)
        element = self._draft.element_of(self._body, name, parameter, shape, index)
        self._body.put_after([parameter], element)
        self.elements.append(element)
        return element

    def _invariants(self) -> list[HloInstruction]:
        """Elements of the first state that do not change, and are needed."""
        needed = {operand for one in self._plan.remade for operand in self._values.operands(one)}
        needed.update(stack.value for stack in self._plan.dropped)
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
                self._made[value] = self._draft.instruction(elements[0])
                return True
        self._made[value] = self._add_element(value.name, outside.shape)
        return False

    # Values that are made.

    def _remake(self, stack: Stack) -> HloInstruction:
        """The slice of a stack, recomputed with all that it needs."""
        for value in self._needed(stack.value):
            is_part = value in self._remade and self._values.owner(value) is not None
            if value not in self._made and not is_part:
                self._made[value] = self._value(value)
        owner = self._values.owner(stack.value)
        if owner is not None and stack.value in self._remade:
            self._repeat_fusion(owner)
        part = self._narrowed.get(stack)
        if part is None:
            part = self._made[stack.value]
            if not stack.is_exact:
                shape = narrowed(part.shape, stack.shape)
                name = f"{stack.value.name}.converted"
                part = self._emit(self._draft.wrap(self._body, name, shape, "convert", [part]))
        name = self._draft.new(stack.write.runs.name)
        return self._emit(self._body.make(name, stack.part, "bitcast", [part]))

    def _needed(self, wanted: HloInstruction) -> list[HloInstruction]:
        """Values of the first body that one depends on, itself included, in their order."""
        found: set[HloInstruction] = set()
        pending = [wanted]
        while pending:
            value = pending.pop()
            if value in found:
                continue
            found.add(value)
            if value in self._remade:
                pending += self._values.operands(value)
                owner = self._values.owner(value)
                if owner is not None:
                    roots = self._roots.get(owner, ())
                    pending += [one.value if isinstance(one, tuple) else one for one in roots]
        return sorted(found, key=self._values.place)

    def _value(self, value: HloInstruction) -> HloInstruction:
        if all(value in tick for tick in self._first.ticks):
            return self._integer(value)
        if value in self._stacks:
            return self._read(value)
        if not self._values.is_result(value):
            return self._clone(value)
        result = self._values.result(value)
        owner = self._values.owner(result)
        if owner is not None and result not in self._made:
            self._repeat_fusion(owner)
        return self._made[result]

    def _emit(self, instruction: HloInstruction) -> HloInstruction:
        self._pending.append(instruction)
        return instruction

    def _clone(self, value: HloInstruction) -> HloInstruction:
        """The same instruction, on operands of the second body; without control dependencies."""
        made_by = repeated_by(value)
        assert made_by is not None
        attributes = dict(made_by.attributes)
        attributes.pop(CONTROL_PREDECESSORS, None)
        called = [self._callee(one, made_by) for one in made_by.called_computations]
        clone = self._body.make(
            self._draft.new(value.name),
            value.shape,
            made_by.opcode,
            [self._made[operand] for operand in self._values.operands(value)],
            payload=made_by.payload,
            attributes=attributes,
            called=called,
        )
        return self._emit(self._draft.note_copy(clone, made_by))

    def _callee(self, callee: HloComputation, caller: HloInstruction) -> HloComputation:
        """A body of its own for a fusion; what others apply is shared."""
        if caller.opcode != "fusion":
            return self._draft.body(callee).computation
        return self._draft.clone_fused(callee, SUFFIX, self._second.body)

    def _integer(self, value: HloInstruction) -> HloInstruction:
        """An integer of the iteration that is gone through again."""
        wanted = [self._first.ticks[tick][value] for tick in self._pair.counterparts]
        counter = find_counter(self._second)
        if value.shape.text == counter.shape.text and step_of(wanted) is not None:
            return self._count(wanted, value.name)
        if value.opcode == "get-tuple-element":
            raise EditError(f"{value.name} does not go up or down by one")
        for operand in value.operands:
            if operand not in self._made:
                self._made[operand] = self._integer(operand)
        return self._clone(value)

    def _count(self, wanted: Sequence[int], name: str) -> HloInstruction:
        """Integers by iteration, made of this loop's counter."""
        counter = self._draft.instruction(find_counter(self._second))
        key = tuple(wanted)
        if key not in self._counts:
            self._counts[key] = self._new_count(key, name, counter)
        return self._counts[key]

    def _new_count(
        self, wanted: tuple[int, ...], name: str, counter: HloInstruction
    ) -> HloInstruction:
        step = step_of(wanted)
        if step is None:
            raise EditError(f"{name} does not go up or down by one")
        return self._emit(make_count(self._draft, self._body, counter, (wanted[0], step), name))

    def _read(self, value: HloInstruction) -> HloInstruction:
        """The slice of a stored value, in the value's own shape."""
        part = self._part(value)
        place = self._places[value] = self._place(value)
        read = self._emit(
            self._draft.wrap(
                self._body,
                f"{value.name}.slice",
                part,
                "dynamic-slice",
                [self._stacks[value], place, *[0] * (len(part.dimensions) - 1)],
                slice_sizes(part),
            )
        )
        name = self._draft.new(value.name)
        return self._emit(self._body.make(name, value.shape, "bitcast", [read]))

    def _part(self, value: HloInstruction) -> Shape:
        """The slice of a stored value's stack."""
        kept = self._kept.get(value)
        return stacked(value.shape, 1) if kept is None else kept.part

    def _place(self, value: HloInstruction) -> HloInstruction:
        """The index of the slice of a stored value in its stack."""
        kept = self._kept.get(value)
        if kept is None:
            wanted = list(self._pair.counterparts)
        else:
            wanted = [kept.places[tick] for tick in self._pair.counterparts]
        return self._count(wanted, value.name)

    # Fusions of which some values are needed.

    def _repeat_fusion(self, owner: HloInstruction) -> None:
        """Recompute what is needed of a fusion, once."""
        roots = self._roots[owner]
        if all(one in self._made or one in self._narrowed for one in roots):
            return
        fusion = fusion_of(owner)
        assert fusion is not None
        [body] = fusion.called_computations
        draft = self._draft.copy_computation(body, SUFFIX, self._second.body)
        copy_of = dict(zip(body.instructions, draft.instructions, strict=True))
        given = {
            copy_of[parameter]: operand
            for parameter, operand in zip(body.parameters, owner.operands, strict=True)
        }
        given |= self._hand_in(draft, copy_of)
        results = [self._root(draft, root, copy_of) for root in roots]
        draft.root = results[0]
        if len(results) > 1:
            shape = tuple_shape([result.shape for result in results])
            draft.root = draft.make(self._draft.new("tuple"), shape, "tuple", results)
            draft.instructions.append(draft.root)
        attributes = fitting_attributes(fusion, draft)
        attributes.pop("backend_config", None)
        attributes.pop(CONTROL_PREDECESSORS, None)
        operands = self._finish_body(draft, given, loads=attributes.get("kind") in _LOADING)
        made = self._body.make(
            self._draft.new(owner.name),
            draft.root.shape,
            "fusion",
            operands,
            attributes=attributes,
            called=[draft.computation],
        )
        self._take(self._emit(self._draft.note_copy(made, fusion)), roots, results)

    def _finish_body(self, draft: Draft, given: Copies, *, loads: bool) -> list[HloInstruction]:
        """Leave in a new body what counts, under new names; the operands that it is given.

        One that `loads` takes the slices of stacks itself, which are then written nowhere.
        """
        draft.drop_dead(lambda _: True)
        operands: list[HloInstruction] = []
        loaded: dict[HloInstruction, HloInstruction] = {}
        """By stack or index the parameter that it is."""
        for parameter in [one for one in draft.instructions if one.opcode == "parameter"]:
            value = given[parameter]
            if loads and value in self._places:
                self._load(draft, parameter, value, loaded)
            else:
                parameter.payload = str(len(operands))
                operands.append(self._made[value])
        for number, parameter in enumerate(loaded.values(), len(operands)):
            parameter.payload = str(number)
        self._draft.separate(draft, SUFFIX)
        return [*operands, *loaded]

    def _load(
        self,
        draft: Draft,
        parameter: HloInstruction,
        value: HloInstruction,
        loaded: dict[HloInstruction, HloInstruction],
    ) -> None:
        """Let a body take a stored value from its stack, where it had a parameter for it."""
        taken: list[HloInstruction] = []
        for operand in (self._stacks[value], self._places[value]):
            if operand not in loaded:
                name = self._draft.new(operand.name)
                loaded[operand] = draft.make(name, operand.shape, "parameter", payload="0")
                draft.instructions.insert(0, loaded[operand])
            taken.append(loaded[operand])
        part = self._part(value)
        zero = draft.make(self._draft.new("constant"), taken[1].shape, "constant", payload="0")
        read = draft.make(
            self._draft.new(f"{value.name}.slice"),
            part,
            "dynamic-slice",
            [*taken, *[zero] * (len(part.dimensions) - 1)],
            attributes=slice_sizes(part),
        )
        whole = draft.make(self._draft.new(value.name), value.shape, "bitcast", [read])
        draft.put_before(parameter, *([zero] if zero in read.operands else []), read, whole)
        draft.replace(parameter, whole)

    def _hand_in(self, draft: Draft, copy_of: Copies) -> dict[HloInstruction, HloInstruction]:
        """Parameters for values in a body that are there already."""
        given: dict[HloInstruction, HloInstruction] = {}
        for inside, copy in copy_of.items():
            if inside in self._stacks:
                name = self._draft.new(inside.name)
                parameter = draft.make(name, inside.shape, "parameter", payload="0")
                draft.replace(copy, parameter)
                draft.instructions.insert(0, parameter)
                given[parameter] = inside
        return given

    def _root(self, draft: Draft, root: Root, copy_of: Copies) -> HloInstruction:
        """A result of a fusion: a value of its body, or that in the type of a stack."""
        if not isinstance(root, tuple):
            return copy_of[root]
        inside = copy_of[root.value]
        shape = narrowed(inside.shape, root.shape)
        made = draft.make(self._draft.new(inside.name), shape, "convert", [inside])
        draft.instructions.append(made)
        return made

    def _take(
        self, fusion: HloInstruction, roots: Sequence[Root], results: Sequence[HloInstruction]
    ) -> None:
        for number, (root, result) in enumerate(zip(roots, results, strict=True)):
            made = fusion
            if len(roots) > 1:
                element = self._draft.element_of(
                    self._body, result.name, fusion, result.shape, number
                )
                made = self._emit(element)
            if isinstance(root, tuple):
                self._narrowed[root] = made
            else:
                self._made[root] = made
