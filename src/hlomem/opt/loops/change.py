"""All pairs of loops of a program changed for a price, one after another (`choice.py`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.hlo.shape import ElementType, Shape, default_layout, tuple_shape
from hlomem.opt.candidate import Candidate, changed
from hlomem.opt.constants import MAX_PAIRS
from hlomem.opt.loops.backward_body import Remaker, find_counter
from hlomem.opt.loops.choice import LoopPlan, kept_stacks, plan_loops
from hlomem.opt.loops.fusion_edit import FusionEdits, LoopDraft
from hlomem.opt.loops.offsets import moved_by, renumber_counters
from hlomem.opt.loops.pairs import Loop, LoopPair, find_pairs
from hlomem.opt.loops.stacks import stacked
from hlomem.opt.once import once
from hlomem.opt.orders.cost import costs_of
from hlomem.opt.orders.effects import Effects

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from hlomem.hlo.body_draft import Draft
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.pipeline import Stages


def change_loops(candidate: Candidate, price: int) -> Candidate | None:
    """The program with all pairs of loops changed for a price; None where none is."""
    found = None
    for made in iter_changed(candidate, price):
        found = made
    return found


def iter_changed(candidate: Candidate, price: int) -> Iterator[Candidate]:
    """The program with one pair of loops changed for a price, with two, and so on."""
    done: set[tuple[str, str]] = set()
    for _ in range(MAX_PAIRS):
        made = _change_one(candidate, price, done)
        if made is None:
            break
        yield made
        candidate = made


def _change_one(candidate: Candidate, price: int, done: set[tuple[str, str]]) -> Candidate | None:
    """The program with the first pair changed that is not done."""
    stages, scopes = candidate.plan, candidate.given.rules.scopes
    size_of = stages.options.machine.size_of
    costs, effects = costs_of(stages.options.machine), Effects(stages.call_graph)
    for pair in _pairs_of(stages):
        names = pair.first.instruction.name, pair.second.instruction.name
        if names in done:
            continue
        done.add(names)
        plan = plan_loops(pair, costs, size_of, effects, price, scopes)
        if plan is None:
            continue
        dropped = tuple(stack.earlier_index for stack in plan.dropped)
        key = names, dropped, plan.stored, plan.remade
        made = once(candidate, key, partial(_make, candidate, plan))
        if made is not None:
            return made
    return None


def has_pairs(stages: Stages) -> bool:
    """Whether a program has pairs of loops with stacks between them."""
    return bool(_pairs_of(stages))


def _pairs_of(stages: Stages) -> list[LoopPair]:
    return once(stages, "pairs", lambda: find_pairs(stages.module))


def _make(candidate: Candidate, plan: LoopPlan) -> Candidate | None:
    """The program with one pair changed; None where that cannot be written."""
    stages = candidate.plan
    try:
        module = apply_loop_plan(stages.module, plan)
    except EditError:
        return None
    gone = len(plan.dropped) - (len(plan.stored) - len(kept_stacks(plan)))
    return changed(candidate, module, "loops", stacks=gone)


_UNREAD = """
    async-done async-start bitcast broadcast constant copy fusion get-tuple-element iota reshape
    slice
"""
_FREE_TO_GO = frozenset(_UNREAD.split())
"""Opcodes of what is removed when unused; any other stays, and does no harm."""
_EMPTY = '"AllocateBuffer"'
"""The target of custom calls that make room and write nothing to it."""


def apply_loop_plan(module: HloModule, plan: LoopPlan) -> HloModule:
    """The module with other stacks; `EditError` where that cannot be written."""
    return LoopEditor(module, plan).run()


class LoopEditor:
    def __init__(self, module: HloModule, plan: LoopPlan) -> None:
        self._plan = plan
        self._first, self._second = plan.pair.first, plan.pair.second
        self._draft = LoopDraft(module)
        self._fusions = FusionEdits(self._draft)
        self._parent = self._draft.body(self._first.instruction.parent)
        self._kept = kept_stacks(plan)
        self._new = [one for one in plan.stored if one not in self._kept]
        """Values that get a stack of their own."""

    def run(self) -> HloModule:
        draft, parent = self._draft, self._parent
        if self._second.body.index < self._first.body.index:
            draft.move_after(self._first.body, self._bodies_of(self._second))
        first, second = map(draft.body, (self._first.body, self._second.body))
        shapes = [stacked(value.shape, len(self._first.ticks)) for value in self._new]
        starts = [self._start(shape) for shape in shapes]
        dropped = {stack.earlier_index for stack in self._plan.dropped}
        writes = self._write_new(first, shapes, len(first.root.operands) - len(dropped))
        self._change_state(self._first, dropped, starts, writes)
        results = self._take_results(shapes)
        draft.moved = moved_by(self._plan.pair.counterparts)
        remaker = Remaker(self._plan, second, draft, self._kept, self._fusions)
        outside = remaker.run(self._new, shapes)
        given = [*results, *map(draft.instruction, outside)]
        dropped = {stack.later_index for stack in self._plan.dropped}
        self._change_state(self._second, dropped, given, remaker.elements)
        self._fusions.tidy(second)
        second.drop_dead(may_go)
        for body in (first, parent):
            body.drop_dead(may_go)
            self._fusions.drop_results(body)
            body.drop_dead(may_go)
        draft.drop_uncalled()
        return draft.finish()

    @staticmethod
    def _bodies_of(loop: Loop) -> list[HloComputation]:
        """The computations of a loop, callees first."""
        return [loop.body, *([loop.repeats.parent] if loop.is_called else [])]

    def _start(self, shape: Shape) -> HloInstruction:
        """The stack a loop begins with: room, as others begin with, or nothing but zeros."""
        parent, draft = self._parent, self._draft
        before = draft.instruction(self._first.initial)
        for stack in self._plan.dropped:
            given = self._first.initial.operands[stack.earlier_index]
            if _is_empty(given):
                start = parent.make(
                    draft.new("stack"), shape, given.opcode, attributes=given.attributes
                )
                draft.note_copy(start, given)
                parent.put_before(before, start)
                return start
        element = shape.element_type
        zero = parent.make(
            draft.new("zero"),
            Shape(element, (), (), default_layout(0)),
            "constant",
            payload="false" if element is ElementType.PRED else "0",
        )
        start = draft.wrap(parent, "stack", shape, "broadcast", [zero], {"dimensions": "{}"})
        parent.put_before(before, zero, start)
        return start

    def _write_new(self, body: Draft, shapes: Sequence[Shape], index: int) -> list[HloInstruction]:
        """New stacks, written in every iteration of the first loop as soon as a value is there."""
        draft = self._draft
        writes: list[HloInstruction] = []
        parameter = draft.instruction(self._first.body.parameters[0])
        for number, (value, shape) in enumerate(zip(self._new, shapes, strict=True)):
            place = draft.instruction(find_counter(self._first))
            copy = draft.instruction(value)
            element = draft.element_of(body, "stack", parameter, shape, index + number)
            part = body.make(draft.new(value.name), stacked(value.shape, 1), "bitcast", [copy])
            places: list[HloInstruction | int] = [place, *[0] * value.shape.rank]
            write = draft.wrap(
                body, "stacked", shape, "dynamic-update-slice", [element, part, *places]
            )
            body.put_after([copy, place, parameter], element, part, write)
            writes.append(write)
        return writes

    def _take_results(self, shapes: Sequence[Shape]) -> list[HloInstruction]:
        """The new stacks after the first loop."""
        loop = self._draft.instruction(self._first.instruction)
        index = len(loop.shape.elements) - len(shapes)
        taken = [
            self._draft.element_of(self._parent, "stacked", loop, shape, index + number)
            for number, shape in enumerate(shapes)
        ]
        self._parent.put_after([loop], *taken)
        return taken

    def _change_state(
        self,
        loop: Loop,
        dropped: AbstractSet[int],
        given: Sequence[HloInstruction],
        returned: Sequence[HloInstruction],
    ) -> None:
        """Let a loop's state lose elements, and gain some that it is given and returns."""
        draft = self._draft
        parent, body = self._parent, draft.body(loop.body)
        kept = [index for index in range(len(loop.initial.operands)) if index not in dropped]
        initial = draft.instruction(loop.initial)
        initial.operands = (*[initial.operands[index] for index in kept], *given)
        body.root.operands = (*[body.root.operands[index] for index in kept], *returned)
        if loop is self._first:
            self._remove_writes(body)
        shape = tuple_shape([operand.shape for operand in initial.operands])
        initial.shape = body.root.shape = shape
        place_of = {index: place for place, index in enumerate(kept)}
        renumber_counters(draft.instruction(loop.repeats), place_of)
        for body_of, whole in (
            (parent, loop.instruction),
            (body, loop.body.parameters[0]),
            (draft.body(loop.condition), loop.condition.parameters[0]),
        ):
            draft.instruction(whole).shape = shape
            self._renumber(body_of, whole, place_of)
        if loop.is_called:
            for instruction in draft.body(loop.repeats.parent).instructions:
                instruction.shape = shape

    def _renumber(self, draft: Draft, whole: HloInstruction, place_of: Mapping[int, int]) -> None:
        """Let those that take elements of a tuple take them where they are now."""
        for user in whole.users:
            copy = self._draft.instruction(user)
            if user.tuple_index in place_of:
                place = str(place_of[user.tuple_index])
                copy.set_attributes({**copy.attributes, "index": place})
            else:
                draft.instructions.remove(copy)

    def _remove_writes(self, body: Draft) -> None:
        """Take out the writes of dropped stacks; a fusion that does more stays for now."""
        for stack in self._plan.dropped:
            write = stack.write
            gone = list(write.forwarding)
            if not any(one.opcode == "get-tuple-element" for one in gone):
                gone.append(write.runs)
            for instruction in gone:
                body.instructions.remove(self._draft.instruction(instruction))


def _is_empty(value: HloInstruction) -> bool:
    """Whether a value is nothing but room."""
    if value.opcode != "custom-call" or value.operands:
        return False
    return value.attributes.get("custom_call_target") == _EMPTY


def may_go(value: HloInstruction) -> bool:
    return value.opcode in _FREE_TO_GO or _is_empty(value)
