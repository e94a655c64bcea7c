"""Fusions with fewer results, or a slice for a stack; only one instruction calls each body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.hlo.body_draft import relink
from hlomem.hlo.draft import ModuleDraft
from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
from hlomem.hlo.shape import Shape, tuple_shape
from hlomem.opt.loops.offsets import Moved, forget_offset, move_offset, says_offset
from hlomem.opt.loops.stacks import fusion_of, is_transparent, one_slice
from hlomem.opt.remat.edit import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.hlo.body_draft import Draft
    from hlomem.hlo.opcodes import Opcode


class LoopDraft(ModuleDraft):
    _wrapped = 0
    """Bodies of fusions that stand before all others."""
    moved: Moved | None = None
    """The iterations whose values copies take in those of the loop that they run in."""

    def body(self, computation: HloComputation) -> Draft:
        """A computation of the given module, to be changed."""
        return self.draft(self.computation(computation))

    def move_after(self, other: HloComputation, moved: Sequence[HloComputation]) -> None:
        """Let computations stand after another, so that they may share what that calls."""
        listed = self.module.computations
        copies = [self.computation(one) for one in moved]
        for copy in copies:
            listed.remove(copy)
        place = listed.index(self.computation(other)) + 1
        listed[place:place] = copies
        self.renumber()

    def new(self, name: str) -> str:
        """A name like another that is free in the whole module."""
        return self.new_name(name, SUFFIX)

    def finish(self) -> HloModule:
        """The module; copies run in another loop, where what they said of offsets is wrong."""
        copies = [copy for copy in self._model_of if says_offset(copy)]
        for copy in copies:
            if not move_offset(copy, self.moved):
                if self._is_in_call(copy.parent):
                    raise EditError(f"`{copy.name}` cannot say where it begins in another loop")
                forget_offset(copy)
        return super().finish()

    def _is_in_call(self, body: HloComputation) -> bool:
        """Whether a library takes slices of a body by what they say of their offsets alone."""
        return any(
            one.attributes.get("kind") == "kCustom" and body in one.called_computations
            for draft in self._drafts.values()
            for one in draft.instructions
        )

    def element_of(
        self, body: Draft, name: str, whole: HloInstruction, shape: Shape, index: int
    ) -> HloInstruction:
        attributes = {"index": str(index)}
        return body.make(self.new(name), shape, "get-tuple-element", [whole], attributes=attributes)

    def wrap(
        self,
        body: Draft,
        name: str,
        shape: Shape,
        opcode: Opcode,
        operands: Sequence[HloInstruction | int],
        attributes: Mapping[str, str] | None = None,
    ) -> HloInstruction:
        """A fusion of one instruction (none is bare after scheduling); a number stays inside."""
        inside = self.new(f"wrapped_{opcode}")
        outer = [operand for operand in operands if isinstance(operand, HloInstruction)]
        index_shape = outer[-1].shape if outer else shape.with_layout(None)
        taken: list[HloInstruction] = []
        for operand in operands:
            is_inside = isinstance(operand, int)
            number = operand if is_inside else sum(one.opcode == "parameter" for one in taken)
            taken.append(
                body.make(
                    self.new("constant" if is_inside else "parameter"),
                    index_shape if isinstance(operand, int) else operand.shape,
                    "constant" if is_inside else "parameter",
                    payload=str(number),
                )
            )
        root = body.make(self.new(opcode), shape, opcode, taken, attributes=attributes)
        callee = self.add_fused(inside, body.computation, [*taken, root], root)
        kind = {"kind": "kLoop"}
        return body.make(self.new(name), shape, "fusion", outer, attributes=kind, called=[callee])

    def add_fused(
        self,
        name: str,
        like: HloComputation,
        instructions: list[HloInstruction],
        root: HloInstruction,
    ) -> HloComputation:
        """The body of a new fusion, on the thread of another computation."""
        callee = self.add(name, like, self._wrapped, instructions, root).computation
        callee.is_fused = True
        self._wrapped += 1
        return callee


_ALIASING = "output_to_operand_aliasing"
_PRODUCTS = ("convolution", "dot")


class FusionEdits:
    def __init__(self, draft: LoopDraft) -> None:
        self._module = draft
        self._changed: dict[HloComputation, Draft] = {}

    def _draft(self, computation: HloComputation) -> Draft:
        draft = self._module.body(computation)
        self._changed[draft.computation] = draft
        return draft

    # Unused results.

    def drop_results(self, body: Draft) -> None:
        """Drop the results of fusions that are unused in a body."""
        takers: dict[HloInstruction, list[HloInstruction]] = {}
        for instruction in body.instructions:
            for operand in dict.fromkeys(instruction.operands):
                takers.setdefault(operand, []).append(instruction)
        for instruction in list(body.instructions):
            taken = takers.get(instruction, [])
            if instruction.opcode != "fusion" or not instruction.shape.is_tuple or not taken:
                continue
            is_opaque = not is_transparent(instruction) or instruction is body.root
            if is_opaque or any(one.opcode != "get-tuple-element" for one in taken):
                continue
            wanted = sorted({one.tuple_index for one in taken})
            if len(wanted) < len(instruction.shape.elements):
                self._keep_results(body, instruction, taken, wanted)

    def _keep_results(
        self,
        body: Draft,
        fusion: HloInstruction,
        taken: Iterable[HloInstruction],
        wanted: list[int],
    ) -> None:
        draft = self._draft(fusion.called_computations[0])
        results = [draft.root.operands[index] for index in wanted]
        if draft.root.opcode != "tuple" or any(one.opcode == "parameter" for one in results):
            return
        if len(results) == 1:
            draft.instructions.remove(draft.root)
            [draft.root] = results
            fusion.shape = draft.root.shape
            for instruction in taken:
                body.replace(instruction, fusion)
        else:
            draft.root.operands = tuple(results)
            draft.root.shape = fusion.shape = tuple_shape([one.shape for one in results])
            place_of = {index: place for place, index in enumerate(wanted)}
            for instruction in taken:
                place = str(place_of[instruction.tuple_index])
                instruction.set_attributes({**instruction.attributes, "index": place})
        fusion.set_attributes(fitting_attributes(fusion, draft))
        shrink(draft, fusion)

    # Results by themselves.

    def part(self, body: Draft, fusion: HloInstruction, groups: Sequence[Sequence[int]]) -> None:
        """Make several fusions of one, each with some of its results; all that are taken."""
        whole = self._module.instruction(fusion)
        takers = [self._module.instruction(user) for user in fusion.users]
        by_group = [[one for one in takers if one.tuple_index in group] for group in groups]
        *others, last = filter(None, by_group)
        for taken in others:
            made = self._module.copy(whole, self._module.new(whole.name))
            callee = self._module.clone_fused(fusion.called_computations[0], SUFFIX)
            made.called_computations = (callee,)
            relink(made)
            body.put_before(whole, made)
            for one in taken:
                one.operands = (made,)
            self._keep_results(body, made, taken, sorted({one.tuple_index for one in taken}))
        self._keep_results(body, whole, last, sorted({one.tuple_index for one in last}))

    # Slices instead of stacks.

    def feed(self, body: Draft, reader: HloInstruction, number: int, part: HloInstruction) -> None:
        """Let an instruction of a body take a slice where it had taken it of a stack."""
        copy = self._module.instruction(reader)
        if reader.opcode == "async-start":
            copy = self._wait(body, reader)
        operands = list(copy.operands)
        operands[number] = part
        copy.operands = tuple(operands)
        if copy.opcode == "fusion":
            self._feed_inside(copy, number, part.shape)
        else:
            copy.opcode, copy.operands = "bitcast", (part,)
            copy.set_attributes({})

    def _wait(self, body: Draft, start: HloInstruction) -> HloInstruction:
        """Let run where it is done what ran asynchronously."""
        [done] = start.users
        made, begun = map(self._module.instruction, (done, start))
        if made.opcode != "fusion":
            fusion = fusion_of(start)
            assert fusion is not None
            model = self._module.instruction(fusion)
            self._module.note_copy(made, model)
            made.opcode, made.operands = "fusion", begun.operands
            made.called_computations = model.called_computations
            made.set_attributes(dict(fusion.attributes))
            for one in self._draft(fusion.called_computations[0]).instructions:
                forget_offset(one)
            body.instructions.remove(begun)
        return made

    def _feed_inside(self, fusion: HloInstruction, number: int, shape: Shape) -> None:
        """A parameter of a fusion is one slice from now on.

        Loops do not slice it any more. Other kernels go on as they did, lest they are made in
        another way: a slice of one begins at its start, whatever the index.
        """
        [callee] = fusion.called_computations
        draft = self._draft(callee)
        parameter = callee.parameters[number]
        self._module.instruction(parameter).shape = shape
        self._pass_on(draft, parameter, is_loop=fusion.attributes.get("kind") != "kInput")

    def _pass_on(self, draft: Draft, given: HloInstruction, *, is_loop: bool) -> None:
        """Change all that take what has only one slice now."""
        copy = self._module.instruction(given)
        for user in given.users:
            later = self._module.instruction(user)
            if user.opcode == "bitcast":
                later.shape = one_slice(later.shape)
                self._pass_on(draft, user, is_loop=is_loop)
            elif user.opcode == "fusion":
                for number, operand in enumerate(user.operands):
                    if operand is given:
                        self._feed_inside(user, number, copy.shape)
            elif is_loop and later in draft.instructions and later.shape.text == copy.shape.text:
                draft.replace(later, copy)
            else:
                forget_offset(later)

    def tidy(self, body: Draft) -> None:
        """Drop operands that fusions with changed bodies do not need any more."""
        for instruction in list(body.instructions):
            if instruction.opcode != "fusion":
                continue
            draft = self._changed.get(instruction.called_computations[0])
            if draft is None:
                continue
            self.tidy(draft)
            shrink(draft, instruction)
            if draft.root.opcode == "parameter":  # it hands on what it is given
                [given] = instruction.operands
                instruction.opcode, instruction.called_computations = "bitcast", ()
                instruction.operands = (given,)
                instruction.set_attributes({})


def shrink(draft: Draft, fusion: HloInstruction) -> None:
    """Drop the unused values of a body, and the operands that only those had read."""
    parameters = [one for one in draft.instructions if one.opcode == "parameter"]
    draft.drop_dead(lambda _: True)
    left = [one for one in parameters if one in draft.instructions]
    left.sort(key=lambda one: one.parameter_number)
    fusion.operands = tuple([fusion.operands[one.parameter_number] for one in left])
    for number, parameter in enumerate(left):
        parameter.payload = str(number)


def fitting_attributes(fusion: HloInstruction, draft: Draft) -> dict[str, str]:
    """The attributes of a fusion whose body computes less."""
    attributes = dict(fusion.attributes)
    attributes.pop(_ALIASING, None)
    draft.drop_dead(lambda one: one.opcode != "parameter")
    has_product = any(one.opcode in _PRODUCTS for one in _inside(draft))
    if attributes.get("kind") == "kOutput" and not has_product:
        attributes["kind"] = "kLoop"
    return attributes


def _inside(draft: Draft) -> list[HloInstruction]:
    """The instructions of a body, and of the fusions within."""
    found = list(draft.instructions)
    for instruction in found:
        if instruction.opcode == "fusion":
            found += instruction.called_computations[0].instructions
    return found
