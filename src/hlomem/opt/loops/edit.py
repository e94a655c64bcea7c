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
from hlomem.opt.loops.backward_body import LoopEditError, Remaker, element_of, find_counter
from hlomem.opt.loops.body_draft import BodyDraft, Names, Wrapper
from hlomem.opt.loops.choice import kept_stacks
from hlomem.opt.loops.fusion_edit import FusionEdits
from hlomem.opt.loops.stacks import stacked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.opt.loops.choice import LoopPlan
    from hlomem.opt.loops.pairs import Loop

_FREE_TO_GO = frozenset(
    {
        "async-done",
        "async-start",
        "bitcast",
        "broadcast",
        "constant",
        "copy",
        "fusion",
        "get-tuple-element",
        "iota",
        "reshape",
        "slice",
    }
)
"""Opcodes of what goes when nobody reads it; any other stays, and does no harm."""
_EMPTY = '"AllocateBuffer"'
"""The target of custom calls that make room and write nothing to it."""


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
        self._fusions = FusionEdits()
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
        remaker = Remaker(self._plan, second, self._names, self._wrapper, self._kept, self._fusions)
        outside = remaker.run(self._new, shapes)
        given = [*results, *[parent.copy_of[one] for one in outside]]
        dropped = {stack.later_index for stack in self._plan.dropped}
        self._change_state(self._second, dropped, given, remaker.elements)
        self._fusions.tidy(second)
        second.drop_dead(_may_go)
        for draft in (first, parent):
            draft.drop_dead(_may_go)
            self._fusions.drop_results(draft)
            draft.drop_dead(_may_go)
        return self._text(remaker)

    def _draft(self, computation: HloComputation) -> BodyDraft:
        if computation not in self._drafts:
            self._drafts[computation] = BodyDraft(computation)
        return self._drafts[computation]

    def _start(self, shape: Shape) -> HloInstruction:
        """The stack a loop begins with: room, as others begin with, or nothing but zeros."""
        parent = self._parent
        before = parent.copy_of[self._first.initial]
        for stack in self._plan.dropped:
            given = self._first.initial.operands[stack.earlier_index]
            if _is_empty(given):
                attributes = dict(given.attributes)
                name = self._names.new("stack")
                start = parent.make(name, shape, given.opcode, attributes=attributes)
                parent.put_before(before, start)
                return start
        element = shape.element_type
        zero = parent.make(
            self._names.new("zero"),
            Shape(element, (), (), default_layout(0)),
            "constant",
            payload="false" if element is ElementType.PRED else "0",
        )
        start = self._wrapper.wrap(
            parent, "stack", shape, "broadcast", [zero], {"dimensions": "{}"}
        )
        parent.put_before(before, zero, start)
        return start

    def _write_new(
        self, body: BodyDraft, shapes: Sequence[Shape], index: int
    ) -> list[HloInstruction]:
        """New stacks, written in every iteration of the first loop as soon as a value is there."""
        writes: list[HloInstruction] = []
        parameter = body.copy_of[self._first.body.parameters[0]]
        for number, (value, shape) in enumerate(zip(self._new, shapes, strict=True)):
            place = body.copy_of[find_counter(self._first)]
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
        if loop is self._first:
            self._remove_writes(body)
        shape = tuple_shape([operand.shape for operand in initial.operands])
        initial.shape = body.root.shape = shape
        place_of = {index: place for place, index in enumerate(kept)}
        for draft, whole in (
            (parent, loop.instruction),
            (body, loop.body.parameters[0]),
            (condition, loop.condition.parameters[0]),
        ):
            draft.copy_of[whole].shape = shape
            _renumber(draft, whole, place_of)
        if loop.is_called:
            called = self._draft(loop.repeats.parent)
            for instruction in called.instructions:
                instruction.shape = shape

    def _remove_writes(self, body: BodyDraft) -> None:
        """Take out the writes of dropped stacks; a fusion that does more stays for now."""
        for stack in self._plan.dropped:
            write = stack.write
            gone = list(write.behind)
            if not any(one.opcode == "get-tuple-element" for one in gone):
                gone.append(write.runs)
            for instruction in gone:
                body.instructions.remove(body.copy_of[instruction])

    def _text(self, remaker: Remaker) -> str:
        module = self._module
        module.open_all()
        style = module.style._replace(compact_gte=False, async_sugar=False)
        header = "".join(f", {name}={value}" for name, value in module.attributes.items())
        pieces = [f"HloModule {module.name}{header}\n", module.stack_frame_tables.format(), "\n"]
        if pieces[1]:
            pieces[1] += "\n"
        changed = {**self._drafts, **self._fusions.changed}
        new = {draft.made.name: draft for draft in (*self._wrapper.bodies, *remaker.callees)}
        left = self._reached(changed, new)
        for draft in (*changed.values(), *new.values()):
            if draft.made.name in left and not draft.is_in_order():
                raise LoopEditError(f"{draft.made.name} would read what comes later")
        order: list[HloComputation | BodyDraft] = list(self._wrapper.bodies)
        for computation in module.computations:
            if computation is self._second.body:
                order += remaker.callees
            order.append(changed.get(computation, computation))
        for one in order:
            if isinstance(one, BodyDraft):
                text = one.text() if one.made.name in left else ""
            else:
                text = format_computation(one, style) if one.name in left else ""
            pieces.append(f"{text}\n\n" if text else "")
        return "".join(pieces)

    def _reached(
        self, changed: dict[HloComputation, BodyDraft], new: dict[str, BodyDraft]
    ) -> set[str]:
        """The names of computations that are still called."""
        module = self._module
        drafts = {computation.name: draft for computation, draft in changed.items()} | new
        pending, found = [module.entry.name], set[str]()
        while pending:
            name = pending.pop()
            if name in found:
                continue
            found.add(name)
            body = drafts.get(name) or module.computation_by_name[name]
            for instruction in body.instructions:
                pending += [callee.name for callee in instruction.called_computations]
        return found


def _renumber(draft: BodyDraft, whole: HloInstruction, place_of: Mapping[int, int]) -> None:
    """Let those that take elements of a tuple take them where they are now."""
    for user in whole.users:
        copy = draft.copy_of[user]
        if user.tuple_index in place_of:
            place = str(place_of[user.tuple_index])
            copy.set_attributes({**copy.attributes, "index": place})
        else:
            draft.instructions.remove(copy)


def _is_empty(value: HloInstruction) -> bool:
    """Whether a value is nothing but room."""
    if value.opcode != "custom-call" or value.operands:
        return False
    return value.attributes.get("custom_call_target") == _EMPTY


def _may_go(value: HloInstruction) -> bool:
    return value.opcode in _FREE_TO_GO or _is_empty(value)
