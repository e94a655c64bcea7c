"""Edits: a module in, a changed copy out. The given one never changes.

    rewriter = Rewriter(module)
    rewriter.donate(parameter_number=0)
    rewriter.drop_copy(module.entry.find("copy.1"))
    smaller = rewriter.finish()

Edits name instructions and computations of the given module, or those that edits before returned.
One that cannot be made raises `EditError`, which says why, and so does `finish` where all of them
together leave no valid module. The result prints and parses to itself and plans as its text does.
An edited module is printed explicitly, whatever the text of the given one left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.hlo.body_draft import relink, unused_name
from hlomem.hlo.builder import (
    as_shape,
    check_attribute_texts,
    check_name,
    link_attributes,
    make_instruction,
)
from hlomem.hlo.donations import SCHEDULED, Donations, set_attribute, write_donations
from hlomem.hlo.draft import ModuleDraft
from hlomem.hlo.opcodes import HANDING_ON, as_opcode
from hlomem.hlo.resize import checked_resize
from hlomem.hlo.shape import ELEMENT_TYPE_BY_TEXT, ROOT_INDEX, Shape, ShapeIndex
from hlomem.hlo.shape_edits import map_leaves, with_element_type
from hlomem.hlo.text.attributes import InputOutputAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule

_CONSTRAINTS = "operand_layout_constraints"
CLONE = "clone"


class Rewriter:
    """Edits of one module, in the order in which they are made."""

    def __init__(self, module: HloModule) -> None:
        self._draft = ModuleDraft(module)

    def finish(self) -> HloModule:
        """The edited module; the rewriter has done its work then."""
        return self._draft.finish()

    # The header.

    def donate(
        self,
        parameter_number: int,
        output_index: Sequence[int] = ROOT_INDEX,
        parameter_index: Sequence[int] = ROOT_INDEX,
        *,
        must_alias: bool = False,
    ) -> None:
        """Let a part of the result take the memory of an argument (`input_output_alias`)."""
        module = self._draft.module
        entry = module.entry
        shapes = {
            instruction.parameter_number: instruction.shape
            for instruction in self._draft.listed(entry)
            if instruction.opcode == "parameter"
        }
        alias = InputOutputAlias(
            ShapeIndex(output_index), parameter_number, ShapeIndex(parameter_index), must_alias
        )
        donations = Donations(module.input_output_alias)
        donations.add(alias, shapes, self._draft.root(entry).shape)
        write_donations(self._draft.header, donations.aliases, module.buffer_donor)
        self._draft.forget_header()

    def set_header(self, name: str, text: str | None) -> None:
        """Set an attribute of the header; None removes it."""
        if text is not None:
            check_attribute_texts({name: text}, "the header")
        self._set_header(name, text)

    def _set_header(self, name: str, text: str | None) -> None:
        set_attribute(self._draft.header, name, text)
        self._draft.forget_header()

    # The order.

    def reorder(self, computation: HloComputation, order: Sequence[HloInstruction]) -> None:
        """Let the instructions of a computation run in another order, operands before users."""
        draft_of = self._draft
        computation = draft_of.computation(computation)
        copies = [draft_of.instruction(instruction) for instruction in order]
        current = draft_of.listed(computation)
        if len(copies) != len(current) or set(copies) != set(current):
            odd = [instruction.name for instruction in current if instruction not in set(copies)]
            problem = f"`{odd[0]}` is missing" if odd else "it repeats one or adds a foreign one"
            raise EditError(
                f"`{computation.name}`: the order must list every instruction once: {problem}"
            )
        if copies == current:
            return
        draft = draft_of.draft(computation)
        draft.instructions = copies
        draft.check()

    def schedule(self, orders: Mapping[HloComputation, Sequence[HloInstruction]]) -> None:
        """Replace the order of some computations; the module is scheduled from then on."""
        for computation, order in orders.items():
            self.reorder(computation, order)
        self._set_header(SCHEDULED, "true")

    # Instructions.

    def insert(
        self,
        before: HloInstruction,
        name: str,
        shape: Shape | str,
        opcode: str,
        operands: Sequence[HloInstruction] = (),
        *,
        attributes: Mapping[str, str] | None = None,
        called: Sequence[HloComputation] = (),
        control_predecessors: Sequence[HloInstruction] = (),
        payload: str = "",
        like: HloInstruction | None = None,
    ) -> HloInstruction:
        """Add an instruction before another, as `ComputationBuilder.add`, or `like` a known one."""
        before = self._draft.instruction(before)
        draft = self._draft.draft(before.parent)
        position = draft.position(before)
        if draft.find(name) is not None:
            raise EditError(f"`{name}` is defined twice in computation `{before.parent.name}`")
        instruction = make_instruction(
            before.parent,
            name,
            shape,
            as_opcode(opcode),
            [self._draft.instruction(operand) for operand in operands],
            attributes=attributes or {},
            called=[self._callee(callee, before.parent) for callee in called],
            control_predecessors=[
                self._draft.instruction(predecessor) for predecessor in control_predecessors
            ],
            payload=payload,
            known={earlier.name: earlier for earlier in draft.instructions[:position]},
        )
        draft.instructions.insert(position, instruction)
        return instruction if like is None else self._draft.note_copy(instruction, like)

    def remove(self, instruction: HloInstruction) -> None:
        """Remove an unused instruction."""
        instruction = self._draft.instruction(instruction)
        draft = self._draft.draft(instruction.parent)
        users = [
            other
            for other in draft.instructions
            if instruction in other.operands or instruction in other.control_predecessors
        ]
        if users or instruction is draft.root:
            who = f"`{users[0].name}` uses it" if users else "it is the root"
            raise EditError(f"`{instruction.name}` cannot be removed: {who}")
        if instruction.opcode == "parameter":
            raise EditError(f"`{instruction.name}` cannot be removed: callers give it a value")
        self._draft.remove(instruction)

    def clone(self, instruction: HloInstruction, name: str = "") -> HloInstruction:
        """Add a copy of an instruction right after it; the copy is unused so far."""
        instruction = self._draft.instruction(instruction)
        if instruction.opcode == "parameter":
            raise EditError(f"parameter `{instruction.name}` cannot be cloned: it has its number")
        draft = self._draft.draft(instruction.parent)
        if name:
            check_name(name, "an instruction")
        taken = {other.name for other in draft.instructions}
        copy = self._draft.copy(
            instruction, name or unused_name(f"{instruction.name}.{CLONE}", taken)
        )
        if copy.name in taken:
            raise EditError(f"`{copy.name}` is defined twice in computation `{copy.parent.name}`")
        draft.instructions.insert(draft.position(instruction) + 1, copy)
        return copy

    def set_operand(
        self, instruction: HloInstruction, number: int, operand: HloInstruction
    ) -> None:
        """Let an instruction read another operand of the same shape, but for the layout."""
        instruction, operand = map(self._draft.instruction, (instruction, operand))
        operands = list(instruction.operands)
        if not 0 <= number < len(operands):
            raise EditError(f"`{instruction.name}` has no operand {number}: it has {len(operands)}")
        _check_agree(operands[number], operand)
        operands[number] = operand
        self._draft.draft(instruction.parent)
        instruction.operands = tuple(operands)

    def replace_uses(self, old: HloInstruction, new: HloInstruction) -> None:
        """Let the users of one instruction read another, which also replaces it as the root."""
        old, new = map(self._draft.instruction, (old, new))
        _check_agree(old, new)
        self._replace_uses(old, new)

    def _replace_uses(self, old: HloInstruction, new: HloInstruction) -> None:
        draft = self._draft.draft(old.parent)
        for instruction in draft.instructions:
            if old in instruction.operands and instruction is not new:
                instruction.operands = tuple(
                    [new if operand is old else operand for operand in instruction.operands]
                )
            if old in instruction.control_predecessors and instruction is not new:
                kept = [
                    new if needed is old else needed for needed in instruction.control_predecessors
                ]
                instruction.control_predecessors = tuple(dict.fromkeys(kept))
                relink(instruction)
        if draft.root is old:
            draft.root = new

    def release(self, instruction: HloInstruction) -> None:
        """Remove the control dependencies on an instruction of those that do not read it."""
        instruction = self._draft.instruction(instruction)
        for other in self._draft.draft(instruction.parent).instructions:
            if instruction in other.control_predecessors:
                other.control_predecessors = tuple(
                    needed for needed in other.control_predecessors if needed is not instruction
                )
                relink(other)

    def drop_copy(self, copy: HloInstruction, *, takes_layout_of_copy: bool = False) -> None:
        """Let the users of a copy read its operand, in its own layout or in that of the copy.

        An instruction that takes another layout computes it so; what it calls is not changed.
        """
        copy = self._draft.instruction(copy)
        if copy.opcode != "copy":
            raise EditError(f"`{copy.name}` is not a copy: its opcode is `{copy.opcode}`")
        [source] = copy.operands
        draft = self._draft.draft(copy.parent)
        if takes_layout_of_copy and source.shape != copy.shape:
            others = [user for user in draft.users(source) if user is not copy]
            is_argument = source.opcode == "parameter" and not source.parent.is_entry
            if source.opcode in HANDING_ON or is_argument or others or draft.root is source:
                why = f"`{others[0].name}` reads it, too" if others else "others determine it"
                raise EditError(f"`{source.name}` cannot have the layout of `{copy.name}`: {why}")
            source.shape = copy.shape
        self._replace_uses(copy, source)
        self._draft.remove(copy)

    def set_shape(self, instruction: HloInstruction, shape: Shape | str) -> None:
        """Give an instruction another result shape; its users and callers must agree with it."""
        instruction = self._draft.instruction(instruction)
        self._draft.draft(instruction.parent)
        instruction.shape = as_shape(shape, instruction.name)

    def set_attribute(self, instruction: HloInstruction, name: str, text: str | None) -> None:
        """Set an attribute of an instruction; None removes it."""
        instruction = self._draft.instruction(instruction)
        attributes = {**instruction.attributes, name: text or ""}
        if text is None:
            del attributes[name]
        links = instruction.called_computations, instruction.control_predecessors
        linked = link_attributes(
            instruction.opcode, instruction.operands, attributes, *links, instruction.name
        )
        if linked.get(name) != text:
            raise EditError(f"`{name}` of `{instruction.name}` names what it is linked with")
        check_attribute_texts(linked, f"`{instruction.name}`")
        self._draft.draft(instruction.parent)
        instruction.set_attributes(linked)

    def rename(self, instruction: HloInstruction, name: str) -> None:
        """Rename an instruction; the name must be free in its computation."""
        check_name(name, "an instruction")
        instruction = self._draft.instruction(instruction)
        draft = self._draft.draft(instruction.parent)
        instruction.name = name
        for other in draft.instructions:
            if instruction in other.control_predecessors:
                relink(other)

    # Computations.

    def clone_computation(self, computation: HloComputation, suffix: str = CLONE) -> HloComputation:
        """Add a clone of a computation and of all that it calls; the clone is not called yet.

        Names get the suffix, and a number where that is not enough, as in
        `HloModule::DeepCloneComputation`.
        """
        check_name(suffix, "a clone")
        made = self._draft.copy_computation(computation, suffix)
        self._draft.separate(made, suffix, is_deep=True)
        return made.computation

    def clone_fused(self, computation: HloComputation, suffix: str = CLONE) -> HloComputation:
        """Add a second body for a fusion, and for those in it; what they apply is shared."""
        check_name(suffix, "a clone")
        return self._draft.clone_fused(computation, suffix)

    def set_called(
        self, instruction: HloInstruction, number: int, computation: HloComputation
    ) -> None:
        """Replace a computation that an instruction calls by another."""
        instruction = self._draft.instruction(instruction)
        called = list(instruction.called_computations)
        if not 0 <= number < len(called):
            raise EditError(f"`{instruction.name}` does not call {number + 1} computations")
        callee = self._callee(computation, instruction.parent)
        old, new = (
            self._draft.program_shape(computation) for computation in (called[number], callee)
        )
        if old != new:
            raise EditError(
                f"`{callee.name}` does not take and return what `{called[number].name}` does"
            )
        called[number] = callee
        self._draft.draft(instruction.parent)
        instruction.called_computations = tuple(called)
        callee.is_fused |= instruction.opcode == "fusion"
        relink(instruction)

    def _callee(self, computation: HloComputation, caller: HloComputation) -> HloComputation:
        callee = self._draft.computation(computation)
        if callee.index >= caller.index:
            raise EditError(f"`{callee.name}` comes after `{caller.name}`, which cannot call it")
        return callee

    # Everywhere.

    def change_element_type(self, old: str, new: str) -> None:
        """Change every array of one element type to another: the bytes change, and nothing else."""
        known = {
            name: element_type
            for name, element_type in ELEMENT_TYPE_BY_TEXT.items()
            if element_type.is_array
        }
        for name in (old, new):
            if name not in known:
                raise EditError(f"there are no arrays of `{name}`: known are {', '.join(known)}")

        def change(shape: Shape) -> Shape:
            return (
                with_element_type(shape, known[new]) if shape.element_type is known[old] else shape
            )

        if not self.map_arrays(change):
            raise EditError(f"module `{self._draft.module.name}` has no array of `{old}`")

    def resize(self, old: int, new: int) -> dict[int, int]:
        """Resize every dimension of one size, and those it is merged into.

        Returns all sizes that changed. Dimensions are told apart by their sizes alone: `old` is
        the batch's only if nothing else has as many elements. Raises where an instruction would
        not fit any more (`hlomem.hlo.resize`).
        """
        resize = checked_resize(old, new)
        drafts = list(self._draft.drafts())
        resize.find_sizes([instruction for draft in drafts for instruction in draft.instructions])
        if not self.map_arrays(resize.shape):
            raise EditError(f"module `{self._draft.module.name}` has no dimension of size {old}")
        for draft in drafts:
            for instruction in draft.instructions:
                resize.finish(instruction)
        return resize.sizes

    def map_arrays(self, change: Callable[[Shape], Shape]) -> bool:
        """Map the shape of every array of every instruction; whether any changed."""
        changed: dict[Shape, Shape] = {}
        is_any = False
        for draft in self._draft.drafts():
            for instruction in draft.instructions:
                shape = instruction.shape
                if shape not in changed:
                    changed[shape] = map_leaves(shape, change)
                is_any |= changed[shape] is not shape
                instruction.shape = changed[shape]
                if _CONSTRAINTS in instruction.attribute_text:
                    self._map_constraints(instruction, change)
        return is_any

    def _map_constraints(self, instruction: HloInstruction, edit: Callable[[Shape], Shape]) -> None:
        """Change the shapes that a custom call names its operands' layouts with."""
        text = instruction.attributes.get(_CONSTRAINTS)
        if text is not None:
            shapes = map_leaves(as_shape(f"({text[1:-1]})", instruction.name), edit)
            inner = shapes.text[1:-1]
            instruction.set_attributes({**instruction.attributes, _CONSTRAINTS: f"{{{inner}}}"})


def _check_agree(old: HloInstruction, new: HloInstruction) -> None:
    """Raise unless one can be read instead of the other."""
    if old.parent is not new.parent:
        raise EditError(f"`{new.name}` is not in the computation of `{old.name}`")
    shapes = old.shape.text_without_layout, new.shape.text_without_layout
    if shapes[0] != shapes[1]:
        raise EditError(f"`{new.name}` has shape `{shapes[1]}`, `{old.name}` has `{shapes[0]}`")
