"""Stacks laid out otherwise between two loops: slice by slice, in the loop that reads them.

Where the loops want other layouts, or another type, XLA copies a whole stack in between, so that it
is there twice, and neither loop can do without it:

    relaid = transpose(stack);  for i: … dynamic-slice(relaid, i) …

The second loop takes the stack as it is, and lays out its own slice:

    for i: … transpose(dynamic-slice(stack, i)) …
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import EditError
from hlomem.hlo.schedule import running_computations
from hlomem.hlo.shape import tuple_shape
from hlomem.hlo.text.body import CONTROL_PREDECESSORS
from hlomem.opt.candidate import Candidate, changed
from hlomem.opt.loops.backward_body import find_counter, make_count, slice_sizes, step_of
from hlomem.opt.loops.change import may_go
from hlomem.opt.loops.fusion_edit import FusionEdits, LoopDraft
from hlomem.opt.loops.pairs import count_callers, find_loops, find_reads
from hlomem.opt.loops.stacks import have_same_slices, is_transparent, one_slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.body_draft import Draft
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.opt.loops.pairs import Loop
    from hlomem.opt.loops.stacks import Callers, Read

_MOVING = ("convert", "copy", "transpose")
_ALIKE = ("bitcast", *_MOVING)


class _Relaid(NamedTuple):
    """An element of a loop's state that is a stack in another layout."""

    loop: Loop
    later_index: int
    """In the loop's state."""
    stack: HloInstruction
    parts: tuple[HloInstruction, ...]
    """Operations on the stack, first to last, those of fusions one by one."""
    outer: tuple[HloInstruction, ...]
    """The same by instructions outside of fusions, last to first."""
    reads: tuple[Read, ...]
    line: tuple[int, int]
    """The index of the slice that the first iteration reads, and the step to the next."""


def relay_stacks(candidate: Candidate) -> Candidate | None:
    """The program whose loops lay out what they read themselves, if it is no larger."""
    made = candidate
    while (found := next(iter(_find(made.plan.module)), None)) is not None:
        try:
            module = _Editor(made.plan.module, found).run()
        except EditError:
            break
        made = changed(made, module, "loops")
    return made if made is not candidate and made.total <= candidate.total else None


def relaid_from(value: HloInstruction) -> tuple[HloInstruction, list[HloInstruction]] | None:
    """The stack that an instruction lays out otherwise, and by what; None where it does more."""
    if value.opcode in _ALIKE:
        parts, stack = [value], value.operands[0]
    elif value.opcode == "fusion" and len(value.operands) == 1 and is_transparent(value):
        [body], [stack] = value.called_computations, value.operands
        parts = [one for one in body.instructions if one.opcode != "parameter"]
        if len(body.parameters) != 1 or any(one.opcode not in _ALIKE for one in parts):
            return None
        if not parts or any(len(one.users) != 1 for one in (*body.parameters, *parts[:-1])):
            return None
    else:
        return None
    is_kept = all(_keeps_slices(one) for one in parts)
    return (stack, parts) if is_kept and stack.shape.is_array else None


def _keeps_slices(part: HloInstruction) -> bool:
    """Whether a value has the slices of its operand, each for itself in another layout."""
    if not part.shape.is_array or not have_same_slices(part.shape, part.operands[0].shape):
        return False
    return part.opcode != "transpose" or part.integers("dimensions")[0] == 0


def _find(module: HloModule) -> list[_Relaid]:
    callers = count_callers(module)
    return [
        found
        for computation in running_computations(module)
        for loop in find_loops(computation, callers)
        if not loop.is_called
        for index in loop.elements
        if (found := _relaid(loop, index, callers)) is not None
    ]


def _relaid(loop: Loop, index: int, callers: Callers) -> _Relaid | None:
    """The element of a loop's state that is a stack in another layout, which nothing else reads."""
    given = loop.initial.operands
    later, value = loop.initial, given[index]
    if index in loop.results or not loop.is_invariant(index) or given.count(value) != 1:
        return None
    parts: list[HloInstruction] = []
    outer: list[HloInstruction] = []
    while value.users == [later] and (found := relaid_from(value)) is not None:
        outer.append(value)
        later, (value, more) = value, found
        parts = [*more, *parts]
    if not any(one.opcode in _MOVING for one in parts) or not _is_stacked(value):
        return None
    reads = find_reads(loop, index, callers)
    places = {tuple(one) for _, one in reads}
    step = step_of(next(iter(places))) if len(places) == 1 else None
    if step is None:
        return None
    readers = tuple(dict.fromkeys(read for read, _ in reads))
    line = next(iter(places))[0], step
    return _Relaid(loop, index, value, tuple(parts), tuple(outer), readers, line)


def _is_stacked(value: HloInstruction) -> bool:
    """Whether a value comes out of a loop."""
    return value.opcode == "get-tuple-element" and value.operands[0].opcode in ("call", "while")


class _Editor:
    def __init__(self, module: HloModule, relaid: _Relaid) -> None:
        self._relaid = relaid
        self._loop = relaid.loop
        self._draft = LoopDraft(module)
        self._fusions = FusionEdits(self._draft)

    def run(self) -> HloModule:
        draft, loop = self._draft, self._loop
        parent, body = draft.body(loop.instruction.parent), draft.body(loop.body)
        self._change_state(body)
        part = self._lay_out(body)
        for read in self._relaid.reads:
            self._fusions.feed(body, read.instruction, read.number, part)
        self._fusions.tidy(body)
        for one in (body, parent):
            one.drop_dead(may_go)
        draft.drop_uncalled()
        return draft.finish()

    def _change_state(self, body: Draft) -> None:
        """Let the loop be given the stack."""
        draft, loop, index = self._draft, self._loop, self._relaid.later_index
        initial = draft.instruction(loop.initial)
        given = list(initial.operands)
        given[index] = draft.instruction(self._relaid.stack)
        initial.operands = tuple(given)
        shape = tuple_shape([operand.shape for operand in given])
        draft.body(loop.condition)  # which has no text of its own from now on
        wholes = (loop.instruction, loop.body.parameters[0], loop.condition.parameters[0])
        for whole in (initial, body.root, *map(draft.instruction, wholes)):
            whole.shape = shape
        for element in loop.elements[index]:
            draft.instruction(element).shape = self._relaid.stack.shape

    def _lay_out(self, body: Draft) -> HloInstruction:
        """The slice as it was read, before its first reader."""
        draft, relaid = self._draft, self._relaid
        readers = [draft.instruction(read.instruction) for read in relaid.reads]
        first = min(readers, key=body.position)
        element = draft.instruction(self._loop.elements[relaid.later_index][0])
        place = draft.instruction(find_counter(self._loop))
        new: list[HloInstruction] = []
        if relaid.line != (0, 1):
            place = make_count(draft, body, place, relaid.line, place.name)
            new.append(place)
        new.append(self._fusion(body, [element, place]))
        for needed in dict.fromkeys(operand for one in new for operand in one.operands):
            is_later = needed not in new and body.position(needed) > body.position(first)
            if is_later and needed.opcode == "get-tuple-element":
                body.instructions.remove(needed)
                body.put_after(needed.operands, needed)
        body.put_before(first, *new)
        return new[-1]

    def _fusion(self, body: Draft, operands: Sequence[HloInstruction]) -> HloInstruction:
        """The fusion that lays out one slice, as that of the stack did."""
        draft, stack = self._draft, self._relaid.stack
        fusions = [one for one in self._relaid.outer if one.opcode == "fusion"]
        taken = [
            body.make(draft.new("parameter"), one.shape, "parameter", payload=str(number))
            for number, one in enumerate(operands)
        ]
        zero = body.make(draft.new("constant"), taken[1].shape, "constant", payload="0")
        shape = one_slice(stack.shape)
        others = [zero] * (len(shape.dimensions) - 1)
        value = body.make(
            draft.new("dynamic-slice"),
            shape,
            "dynamic-slice",
            [*taken, *others],
            attributes=slice_sizes(shape),
        )
        inside = [*taken, *([zero] if others else []), value]
        for part in self._relaid.parts:
            made = draft.copy(draft.instruction(part), draft.new(part.name))
            made.shape, made.operands, made.parent = (
                one_slice(part.shape),
                (value,),
                body.computation,
            )
            inside.append(made)
            value = made
        name = fusions[0].name if fusions else self._relaid.outer[0].name
        callee = draft.add_fused(draft.new(f"{name}.slice"), body.computation, inside, value)
        attributes = dict(fusions[0].attributes) if fusions else {"kind": "kLoop"}
        attributes.pop(CONTROL_PREDECESSORS, None)
        made = body.make(
            draft.new(name), value.shape, "fusion", operands, attributes=attributes, called=[callee]
        )
        return draft.note_copy(made, draft.instruction(fusions[0])) if fusions else made
