"""A second level of checkpoints: of a stack of states every k-th is kept, and k are recomputed.

A recurrence of n steps leaves a stack of its n states for the loop that goes back through it. With
segments of k steps the first loop keeps the state at the begin of each, and the second, whenever it
enters a segment, runs the recurrence through it once more, into a stack of k:

    first    for i in 0 … n-1:  kept[(i + k - 1) / k] = state;  state = step(state, i)
    second   for i in n-1 … 0:  where a segment ends: for r in the segment: few[r - begin] = state …
                                … few[i - begin] …

The last write to a place of `kept` is that of the segment's begin, so that nothing is conditional.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.base.errors import EditError
from hlomem.hlo.shape import ElementType, Shape, default_layout, tuple_shape
from hlomem.opt.candidate import Candidate, planned, start_text
from hlomem.opt.checks import Change
from hlomem.opt.constants import LEAST_SEGMENTED, MAX_PAIRS
from hlomem.opt.loops.backward_body import find_counter
from hlomem.opt.loops.change import LoopEditor, may_go
from hlomem.opt.loops.choice import LoopPlan
from hlomem.opt.loops.pairs import find_pairs
from hlomem.opt.loops.stacks import stacked
from hlomem.opt.orders.cost import program_flops
from hlomem.opt.remat.edit import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.body_draft import Draft
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.opcodes import Opcode
    from hlomem.opt.loops.pairs import Loop, LoopPair, Stack


def segment_loops(candidate: Candidate) -> Candidate | None:
    """The program whose stacks of states are kept by segments; None where there are none."""
    done: set[tuple[str, str]] = set()
    stages, changes = candidate.plan, list(candidate.changes_so_far)
    for _ in range(MAX_PAIRS):
        module = _segment_one(stages.module, done)
        if module is None:
            break
        changes.append(Change(module, "loops"))
        stages = start_text(module, stages.options)
    made = planned(candidate.given, stages)
    if made.temporaries >= candidate.temporaries:
        return None
    return replace(
        made,
        changes=tuple(changes),
        flops=program_flops(stages) - candidate.given.flops,
        stacks=candidate.stacks,
        clones=candidate.clones,
    )


def _segment_one(module: HloModule, done: set[tuple[str, str]]) -> HloModule | None:
    """The program with the first pair changed that is not done."""
    for pair in find_pairs(module):
        names = pair.first.instruction.name, pair.second.instruction.name
        if names in done:
            continue
        done.add(names)
        recurrence = find_recurrence(pair)
        if recurrence is not None:
            try:
                return _Editor(module, pair, recurrence).run()
            except EditError:
                continue
    return None


# Stacks that hold the states of a recurrence.


def find_recurrence(pair: LoopPair) -> tuple[Stack, ...] | None:
    """The stacks of all states that a loop carries from step to step; None where one is missing."""
    first, trips = pair.first, len(pair.first.ticks)
    if trips < LEAST_SEGMENTED or pair.counterparts != tuple(range(trips))[::-1]:
        return None
    held: dict[int, Stack] = {}
    for stack in pair.stacks:
        state = _state_of(stack.value, first)
        if state is not None and stack.is_exact and stack.places == tuple(range(trips)):
            held.setdefault(state, stack)
    needed = _carried(first, held)
    if not needed or not needed <= held.keys():
        return None
    return tuple(held[index] for index in sorted(needed))


def _state_of(value: HloInstruction, loop: Loop) -> int | None:
    """The index of the state that a value is, or a copy of."""
    if value.opcode == "copy":
        [value] = value.operands
    is_element = value.opcode == "get-tuple-element" and value.parent is loop.body
    if not is_element or value.operands[0].opcode != "parameter":
        return None
    return None if loop.is_invariant(value.tuple_index) else value.tuple_index


def _carried(loop: Loop, wanted: Mapping[int, Stack]) -> set[int]:
    """The states that others are computed of, from step to step, integers of the counter aside."""
    found: set[int] = set()
    pending = list(wanted)
    while pending:
        index = pending.pop()
        if index in found:
            continue
        found.add(index)
        for value in _needed_by([loop.body.root.operands[index]]):
            if value.opcode == "get-tuple-element" and value.operands[0].opcode == "parameter":
                is_known = all(value in tick for tick in loop.ticks)
                if not loop.is_invariant(value.tuple_index) and not is_known:
                    pending.append(value.tuple_index)
    return found


def _needed_by(values: Sequence[HloInstruction]) -> set[HloInstruction]:
    found: set[HloInstruction] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            pending += value.operands
    return found


# The edit.


class _Editor(LoopEditor):
    def __init__(self, module: HloModule, pair: LoopPair, held: tuple[Stack, ...]) -> None:
        super().__init__(module, LoopPlan(pair, held, (), (), 0))
        self._held = held
        self._values = [stack.value for stack in held]
        self._trips = len(pair.first.ticks)
        self._length = isqrt(self._trips - 1) + 1
        self._returned: list[HloInstruction] = []
        """Further elements that the second loop returns."""
        self._given: list[HloInstruction] = []
        """The values outside that it is given in addition."""

    def run(self) -> HloModule:
        draft, parent = self._draft, self._parent
        if self._second.body.index < self._first.body.index:
            draft.move_after(self._first.body, self._bodies_of(self._second))
        step = draft.copy_computation(self._first.body, SUFFIX, self._second.body)
        copy_of = dict(zip(self._first.body.instructions, step.instructions, strict=True))
        kept = self._keep()
        first, second = map(draft.body, (self._first.body, self._second.body))
        few = self._recompute(second, step, copy_of, kept)
        dropped = {stack.later_index for stack in self._held}
        for stack, part in zip(self._held, few, strict=True):
            for read in stack.reads:
                self._fusions.feed(second, read.instruction, read.number, part)
        self._change_state(self._second, dropped, self._given, self._returned)
        self._fusions.tidy(second)
        for body in (first, second, parent):
            body.drop_dead(may_go)
        draft.drop_uncalled()
        return draft.finish()

    def _keep(self) -> list[HloInstruction]:
        """Let the first loop keep the states of segments' begins; the stacks of those after it."""
        draft = self._draft
        body = draft.body(self._first.body)
        count = (self._trips + self._length - 2) // self._length + 1
        shapes = [stacked(value.shape, count) for value in self._values]
        starts = [self._start(shape) for shape in shapes]
        dropped = {stack.earlier_index for stack in self._held}
        index = len(body.root.operands) - len(dropped)
        counter = draft.instruction(find_counter(self._first))
        later = draft.wrap(body, "later", counter.shape, "add", [self._length - 1, counter])
        place = draft.wrap(body, "segment", counter.shape, "divide", [later, self._length])
        body.put_after([counter], later, place)
        parameter = draft.instruction(self._first.body.parameters[0])
        writes: list[HloInstruction] = []
        for number, (value, shape) in enumerate(zip(self._values, shapes, strict=True)):
            copy = draft.instruction(value)
            element = draft.element_of(body, "kept", parameter, shape, index + number)
            writes += self._write(body, element, copy, place)
        self._change_state(self._first, dropped, starts, writes)
        return self._take_results(shapes)

    def _write(
        self, body: Draft, element: HloInstruction, value: HloInstruction, place: HloInstruction
    ) -> list[HloInstruction]:
        """A slice written to an element of a body's state, as soon as it is there."""
        draft = self._draft
        part = body.make(draft.new(value.name), stacked(value.shape, 1), "bitcast", [value])
        places: list[HloInstruction | int] = [place, *[0] * value.shape.rank]
        write = draft.wrap(
            body, "kept", element.shape, "dynamic-update-slice", [element, part, *places]
        )
        body.put_after([value, place, *element.operands], element, part, write)
        return [write]

    # The second loop.

    def _recompute(
        self,
        body: Draft,
        step: Draft,
        copy_of: Mapping[HloInstruction, HloInstruction],
        kept: Sequence[HloInstruction],
    ) -> list[HloInstruction]:
        """Let the second loop run through a segment where it enters one; the slices it reads."""
        draft = self._draft
        new: list[HloInstruction] = []
        elements = [self._add(body, one, "kept") for one in kept]
        self._returned += elements
        shapes = [stacked(value.shape, self._length) for value in self._values]
        few = [self._add(body, self._start(shape), "few") for shape in shapes]
        invariants = self._invariants()
        given = [self._find(body, one) for one in invariants.values()]
        place, begin, segment, end = self._count(body, new)
        states = [
            self._slice(body, new, element, segment, value.shape)
            for element, value in zip(elements, self._values, strict=True)
        ]
        begun = self._put(new, draft.wrap(body, "begin", begin.shape, "add", [begin, 0]))
        operands = [begun, end, begin, *few, *states, *given]
        shape = tuple_shape([one.shape for one in operands])
        state = self._put(new, body.make(draft.new("tuple"), shape, "tuple", operands))
        called = [
            self._step(step, copy_of, shape, list(invariants)),
            self._condition(shape, step),
        ]
        loop = self._put(new, body.make(draft.new("while"), shape, "while", [state], called=called))
        made: list[HloInstruction] = []
        parts: list[HloInstruction] = []
        for number, stack in enumerate(self._held):
            index = 3 + number
            made.append(self._put(new, draft.element_of(body, "few", loop, shapes[number], index)))
            parts.append(self._slice(body, new, made[-1], place, stack.part))
        self._returned += made
        self._order_returned(len(elements), made)
        counter = draft.instruction(find_counter(self._second))
        body.put_after([counter, *elements, *few, *given], *new)
        return parts

    def _order_returned(self, kept: int, made: Sequence[HloInstruction]) -> None:
        """Put what is returned in the order of what is given: kept, few, invariants."""
        others = [one for one in self._returned[kept:] if one not in made]
        self._returned = [*self._returned[:kept], *made, *others]

    def _add(self, body: Draft, outside: HloInstruction, name: str) -> HloInstruction:
        """A further element of the second loop's state."""
        parameter = self._draft.instruction(self._second.body.parameters[0])
        index = len(self._second.initial.operands) - len(self._held) + len(self._given)
        element = self._draft.element_of(body, name, parameter, outside.shape, index)
        body.put_after([parameter], element)
        self._given.append(outside)
        return element

    def _find(self, body: Draft, outside: HloInstruction) -> HloInstruction:
        """The element of the second loop's state that is a value outside, or a new one."""
        for index, given in enumerate(self._second.initial.operands):
            elements = self._second.elements.get(index)
            if given is outside and elements and self._second.is_invariant(index):
                found = self._draft.instruction(elements[0])
                body.instructions.remove(found)
                body.put_after(found.operands, found)
                return found
        element = self._add(body, self._draft.instruction(outside), outside.name)
        self._returned.append(element)
        return element

    def _invariants(self) -> dict[int, HloInstruction]:
        """By index of the first state that a step needs unchanged: the value outside."""
        first = self._first
        indices = [_state_of(value, first) for value in self._values]
        results = [first.body.root.operands[index] for index in indices if index is not None]
        needed = _needed_by([*results, *self._values])
        return {
            index: first.initial.operands[index]
            for index, elements in sorted(first.elements.items())
            if first.is_invariant(index)
            and any(one in needed and one not in first.ticks[0] for one in elements)
        }

    def _count(
        self, body: Draft, new: list[HloInstruction]
    ) -> tuple[HloInstruction, HloInstruction, HloInstruction, HloInstruction]:
        """The position in its segment of a step gone back to, the segment's begin and number,
        and where to run to: its end, if that is the step, else its begin."""
        draft, length, trips = self._draft, self._length, self._trips
        counter = draft.instruction(find_counter(self._second))
        integer = counter.shape

        def emit(
            name: str,
            opcode: Opcode,
            operands: Sequence[HloInstruction | int],
            shape: Shape = integer,
            attributes: Mapping[str, str] | None = None,
        ) -> HloInstruction:
            return self._put(new, draft.wrap(body, name, shape, opcode, operands, attributes))

        step = emit("step", "subtract", [trips - 1, counter])
        segment = emit("segment", "divide", [step, length])
        begin = emit("begin", "multiply", [segment, length])
        place = emit("place", "subtract", [step, begin])
        after = emit("after", "add", [step, 1])
        end = emit("end", "minimum", [emit("end", "add", [begin, length]), trips])
        flag = Shape(ElementType.PRED, (), (), default_layout(0))
        enters = emit("enters", "compare", [after, end], flag, {"direction": "EQ"})
        return place, begin, segment, emit("until", "select", [enters, after, begin])

    @staticmethod
    def _put(new: list[HloInstruction], made: HloInstruction) -> HloInstruction:
        new.append(made)
        return made

    def _slice(
        self,
        body: Draft,
        new: list[HloInstruction],
        stack: HloInstruction,
        place: HloInstruction,
        shape: Shape,
    ) -> HloInstruction:
        """One slice of a stack, in a shape of its own."""
        draft = self._draft
        part = Shape(
            stack.shape.element_type, (1, *stack.shape.dimensions[1:]), (), stack.shape.layout
        )
        sizes = ",".join(map(str, part.dimensions))
        places: list[HloInstruction | int] = [place, *[0] * (len(part.dimensions) - 1)]
        read = draft.wrap(
            body,
            "slice",
            part,
            "dynamic-slice",
            [stack, *places],
            {"dynamic_slice_sizes": f"{{{sizes}}}"},
        )
        self._put(new, read)
        return self._put(new, body.make(draft.new("slice"), shape, "bitcast", [read]))

    # The recurrence once more.

    def _step(
        self,
        step: Draft,
        copy_of: Mapping[HloInstruction, HloInstruction],
        shape: Shape,
        invariants: Sequence[int],
    ) -> HloComputation:
        """A step of the first loop that stacks nothing but its states, into few slices."""
        draft, first, count = self._draft, self._first, len(self._held)
        carried = [_state_of(value, first) for value in self._values]
        place_of = {index: 3 + count + place for place, index in enumerate((*carried, *invariants))}
        counter = self._counter_index()
        place_of[counter] = 0
        parameter = copy_of[first.body.parameters[0]]
        parameter.shape = shape
        for index, elements in first.elements.items():
            for element in elements:
                taken = {"index": str(place_of.get(index, 0))}
                copy_of[element].set_attributes({**element.attributes, **taken})
        begin = draft.element_of(step, "begin", parameter, shape.elements[2], 2)
        end = draft.element_of(step, "end", parameter, shape.elements[1], 1)
        step.put_after([parameter], end, begin)
        tick = copy_of[find_counter(first)]
        place = draft.wrap(step, "place", begin.shape, "subtract", [tick, begin])
        step.put_after([tick, begin], place)
        writes: list[HloInstruction] = []
        for number, value in enumerate(self._values):
            element = draft.element_of(
                step, "few", parameter, shape.elements[3 + number], 3 + number
            )
            writes += self._write(step, element, copy_of[value], place)
        root = first.body.root
        kept = [copy_of[first.elements[index][0]] for index in invariants]
        states = [copy_of[root.operands[index]] for index in carried if index is not None]
        operands = [copy_of[root.operands[counter]], end, begin, *writes, *states, *kept]
        old = step.root
        step.root = step.make(draft.new("tuple"), shape, "tuple", operands)
        step.instructions.remove(old)
        step.instructions.append(step.root)
        step.drop_dead(lambda one: one.opcode != "parameter")
        left = {one for one in step.instructions if one.opcode == "get-tuple-element"}
        for index, elements in first.elements.items():
            if index not in place_of and any(copy_of[one] in left for one in elements):
                raise EditError(f"a step needs element {index} of the loop's state")
        draft.separate(step, SUFFIX)
        self._fusions.drop_results(step)
        step.drop_dead(lambda one: one.opcode != "parameter")
        return step.computation

    def _counter_index(self) -> int:
        """The element of the first state that counts its steps."""
        first = self._first
        for index, elements in first.elements.items():
            ticks = [tick.get(elements[0]) for tick in first.ticks]
            if ticks == list(range(self._trips)):
                return index
        raise EditError("no element of the loop's state counts its steps")

    def _condition(self, shape: Shape, step: Draft) -> HloComputation:
        """The computation that tells whether a step is before the end."""
        draft = self._draft
        name = draft.new(self._first.condition.name)
        parameter = step.make(draft.new("parameter"), shape, "parameter", payload="0")
        tick = draft.element_of(step, "step", parameter, shape.elements[0], 0)
        end = draft.element_of(step, "end", parameter, shape.elements[1], 1)
        flag = Shape(ElementType.PRED, (), (), default_layout(0))
        root = draft.wrap(step, "before", flag, "compare", [tick, end], {"direction": "LT"})
        listed = [parameter, tick, end, root]
        return draft.add(
            name, step.computation, step.computation.index + 1, listed, root
        ).computation
