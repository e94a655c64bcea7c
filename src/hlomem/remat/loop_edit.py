"""Loops that stack other values: the text of a module with a `LoopPlan` carried out.

In: a scheduled module and a plan. Out: its text. In the first body the writes of dropped stacks go,
with what nobody else needs, and new stacks are written. In the second, what a dropped stack held is
computed again right before its first reader (`loop_remake.py`). The states of both loops, their
conditions and the tuples they begin with follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.shape import ElementType, Shape, default_layout, tuple_shape
from hlomem.hlo.text.printer import format_computation
from hlomem.remat.body_draft import BodyDraft, Names, Wrapper
from hlomem.remat.loop_remake import LoopEditError, Remaker, element_of, find_counter, stacked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.remat.loop_choice import LoopPlan
    from hlomem.remat.loops import Loop, Stack

_FREE_TO_GO = frozenset(
    {"bitcast", "broadcast", "constant", "copy", "fusion", "get-tuple-element", "iota", "slice"}
)
"""Opcodes of what goes when nobody reads it; any other stays, and does no harm."""


def apply_loop_plan(module: HloModule, plan: LoopPlan) -> str:
    """The text of the module with other stacks; `LoopEditError` where that cannot be written."""
    return _Editor(module, plan).run()


class _Editor:
    def __init__(self, module: HloModule, plan: LoopPlan) -> None:
        self._module = module
        self._plan = plan
        self._first, self._second = plan.pair.first, plan.pair.second
        self._names = Names(module)
        self._wrapper = Wrapper(self._names)
        self._drafts: dict[HloComputation, BodyDraft] = {}
        self._parent = self._draft(self._first.instruction.parent)
        self._kept = kept_stacks(plan)
        self._new = [one for one in plan.stored if one not in self._kept]
        """Values that get a stack of their own."""

    def run(self) -> str:
        if self._second.body.index < self._first.body.index:
            raise LoopEditError("the second loop's body stands before that of the first")
        first, parent = self._draft(self._first.body), self._parent
        shapes = [stacked(value.shape, len(self._first.ticks)) for value in self._new]
        starts = [self._start(shape) for shape in shapes]
        dropped = {stack.earlier_index for stack in self._plan.dropped}
        writes = self._write_new(first, shapes, len(first.root.operands) - len(dropped))
        self._change_state(self._first, dropped, starts, writes)
        results = self._take_results(shapes)
        second = self._draft(self._second.body)
        remaker = Remaker(self._plan, second, self._names, self._wrapper, self._kept)
        outside = remaker.run(self._new, shapes)
        given = [*results, *[parent.copy_of[one] for one in outside]]
        dropped = {stack.later_index for stack in self._plan.dropped}
        self._change_state(self._second, dropped, given, remaker.elements)
        for draft in (first, parent):
            draft.drop_dead(lambda one: one.opcode in _FREE_TO_GO)
        return self._text(remaker)

    def _draft(self, computation: HloComputation) -> BodyDraft:
        if computation not in self._drafts:
            self._drafts[computation] = BodyDraft(computation)
        return self._drafts[computation]

    def _start(self, shape: Shape) -> HloInstruction:
        """The stack a loop begins with: nothing but zeros."""
        parent, element = self._parent, shape.element_type
        zero = parent.make(
            self._names.new("zero"),
            Shape(element, (), (), default_layout(0)),
            "constant",
            payload="false" if element is ElementType.PRED else "0",
        )
        start = self._wrapper.wrap(
            parent, "stack", shape, "broadcast", [zero], {"dimensions": "{}"}
        )
        parent.put_before(parent.copy_of[self._first.initial], zero, start)
        return start

    def _write_new(
        self, body: BodyDraft, shapes: Sequence[Shape], index: int
    ) -> list[HloInstruction]:
        """New stacks, written in every iteration of the first loop as soon as a value is there."""
        writes: list[HloInstruction] = []
        parameter = body.copy_of[self._first.body.parameters[0]]
        for number, (value, shape) in enumerate(zip(self._new, shapes, strict=True)):
            place = body.copy_of[find_counter(self._plan.pair, self._first)]
            copy = body.copy_of[value]
            element = element_of(body, self._names.new("stack"), parameter, shape, index + number)
            part = body.make(
                self._names.new(value.name), stacked(value.shape, 1), "bitcast", [copy]
            )
            places: list[HloInstruction | int] = [place, *[0] * value.shape.rank]
            write = self._wrapper.wrap(
                body, "stacked", shape, "dynamic-update-slice", [element, part, *places]
            )
            body.put_behind([copy, place, parameter], element, part, write)
            writes.append(write)
        return writes

    def _take_results(self, shapes: Sequence[Shape]) -> list[HloInstruction]:
        """The new stacks behind the first loop."""
        loop = self._parent.copy_of[self._first.instruction]
        index = len(loop.shape.elements) - len(shapes)
        taken = [
            element_of(self._parent, self._names.new("stacked"), loop, shape, index + number)
            for number, shape in enumerate(shapes)
        ]
        self._parent.put_behind([loop], *taken)
        return taken

    def _change_state(
        self,
        loop: Loop,
        dropped: AbstractSet[int],
        given: Sequence[HloInstruction],
        returned: Sequence[HloInstruction],
    ) -> None:
        """Let a loop's state lose elements, and gain some that it is given and returns."""
        parent, body = self._parent, self._draft(loop.body)
        condition = self._draft(loop.condition)
        kept = [index for index in range(len(loop.initial.operands)) if index not in dropped]
        initial = parent.copy_of[loop.initial]
        initial.operands = (*[initial.operands[index] for index in kept], *given)
        body.root.operands = (*[body.root.operands[index] for index in kept], *returned)
        shape = tuple_shape([operand.shape for operand in initial.operands])
        place_of = {index: place for place, index in enumerate(kept)}
        for draft, whole in (
            (parent, loop.instruction),
            (body, loop.body.parameters[0]),
            (condition, loop.condition.parameters[0]),
        ):
            draft.copy_of[whole].shape = shape
            for user in whole.users:
                copy = draft.copy_of[user]
                if user.tuple_index in place_of:
                    place = str(place_of[user.tuple_index])
                    copy.set_attributes({**copy.attributes, "index": place})
                else:
                    draft.instructions.remove(copy)
        initial.shape = body.root.shape = shape
        for index in dropped:
            self._remove(body, loop.body.root.operands[index])

    def _remove(self, body: BodyDraft, write: HloInstruction) -> None:
        """Take out the write of a stack; where an element goes around unchanged there is none."""
        copy = body.copy_of[write]
        if copy in body.instructions:
            body.instructions.remove(copy)

    def _text(self, remaker: Remaker) -> str:
        module = self._module
        module.open_all()
        style = module.style._replace(compact_gte=False, async_sugar=False)
        header = "".join(f", {name}={value}" for name, value in module.attributes.items())
        pieces = [f"HloModule {module.name}{header}\n", module.stack_frame_tables.format(), "\n"]
        if pieces[1]:
            pieces[1] += "\n"
        pieces += [f"{text}\n\n" for text in self._wrapper.texts]
        changed = {**self._drafts, **remaker.changed}
        for computation in module.computations:
            if computation is self._second.body:
                pieces += [f"{draft.text()}\n\n" for draft in remaker.callees]
            draft = changed.get(computation)
            text = format_computation(computation, style) if draft is None else draft.text()
            pieces.append(f"{text}\n\n")
        return "".join(pieces)


def kept_stacks(plan: LoopPlan) -> dict[HloInstruction, Stack]:
    """By stored value the stack that holds it and stays."""
    dropped = {stack.earlier_index for stack in plan.dropped}
    kept: dict[HloInstruction, Stack] = {}
    for stack in plan.pair.stacks:
        source = stack.source
        if stack.earlier_index not in dropped and source is not None and source in plan.stored:
            kept.setdefault(source, stack)
    return kept
