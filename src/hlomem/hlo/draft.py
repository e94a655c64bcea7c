"""A copy of a module that can be changed, until it is finished and is a module like any other.

In: a module. Out: another, equal where nothing was changed. The given one stays as it is. Copied
are the instructions outside of fusions; bodies of fusions that have a text are shared as that text
until they are changed or their instructions are read. `hlomem.hlo.rewrite` makes the changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.hlo.body_draft import Draft, copy_instruction, relink, unused_name
from hlomem.hlo.builder import numbered_parameters, verified
from hlomem.hlo.ir import Creation, HloComputation, HloInstruction, HloModule, Origins
from hlomem.hlo.shape import tuple_shape

if TYPE_CHECKING:
    from collections.abc import Iterator

_LAYOUT = "entry_computation_layout"


class ModuleDraft:
    """A module that is being changed."""

    def __init__(self, given: HloModule) -> None:
        self.given = given
        self._computation_of: dict[HloComputation, HloComputation] = {}
        self._given_of: dict[HloComputation, HloComputation] = {}
        self._model_of: dict[HloInstruction, HloInstruction] = {}
        self._instruction_of: dict[HloInstruction, HloInstruction] = {}
        self._drafts: dict[HloComputation, Draft] = {}
        self._removed: set[HloInstruction] = set()
        self._is_finished = False
        self._names: set[str] | None = None
        self._header = dict(given.attributes)
        self.module = HloModule(
            given.name,
            self._header,
            given.stack_frame_tables,
            # An element that moved or was renamed cannot be implied: everything has a line.
            style=lambda: given.style._replace(compact_gte=False, async_sugar=False),
        )
        self._copy_all()

    def _copy_all(self) -> None:
        for index, given in enumerate(self.given.computations):
            copy = HloComputation(
                self.module,
                given.name,
                index,
                given.is_entry,
                given.execution_thread,
                given.reader,
                given.unread,
                given.is_fused,
            )
            self._computation_of[given] = copy
            self._given_of[copy] = given
            self.module.computations.append(copy)
            if given.reader is None or (given.is_open and not given.is_fused):
                self._copy_body(given, copy)
        self.module.entry = self._computation_of[self.given.entry]

    def _copy_body(self, given: HloComputation, copy: HloComputation) -> None:
        copy_of, callee_of = self._instruction_of, self._computation_of
        for instruction in given.instructions:
            copy_of[instruction] = HloInstruction(
                instruction.name,
                instruction.shape,
                instruction.opcode,
                tuple([copy_of[operand] for operand in instruction.operands]),
                instruction.payload,
                instruction._attributes,  # stays text where it is; never changed in place
                copy,
                instruction.index,
                tuple([callee_of[callee] for callee in instruction.called_computations]),
                tuple([copy_of[needed] for needed in instruction.control_predecessors]),
            )
        instructions = [copy_of[instruction] for instruction in given.instructions]
        parameters = [copy_of[parameter] for parameter in given.parameters]
        copy.fill(instructions, parameters, copy_of[given.root])

    def computation(self, computation: HloComputation) -> HloComputation:
        """The copy of a computation of the given module, or one that was made here."""
        self._check_open()
        copy = self._computation_of.get(computation, computation)
        if copy.module is not self.module:
            raise EditError(f"computation `{copy.name}` is not of module `{self.module.name}`")
        return copy

    def instruction(self, instruction: HloInstruction) -> HloInstruction:
        """The copy of an instruction of the given module, or one that was made here."""
        copy = self._instruction_of.get(instruction, instruction)
        parent = self.computation(copy.parent)
        if copy.parent is not parent:  # its body was shared as text until now
            self._pair(parent)
            copy = self._instruction_of[instruction]
        if copy in self._removed:
            raise EditError(f"`{copy.name}` was removed from computation `{parent.name}`")
        return copy

    def track(self, computation: HloComputation) -> None:
        """Remember what the instructions of a computation were, where a message knows more."""
        known = self.given.creation or self.given.origins
        if known is not None and computation in self._given_of:
            self._pair(computation)

    def _pair(self, computation: HloComputation) -> None:
        """Find the copies of the instructions of a body that was shared as text until now."""
        given = self._given_of[computation]
        if given.instructions[0] not in self._instruction_of:
            pairs = zip(given.instructions, computation.instructions, strict=True)
            self._instruction_of.update(pairs)

    def listed(self, computation: HloComputation) -> list[HloInstruction]:
        """The instructions of a computation of this module as they are now."""
        draft = self._drafts.get(computation)
        return computation.instructions if draft is None else draft.instructions

    def root(self, computation: HloComputation) -> HloInstruction:
        draft = self._drafts.get(computation)
        return computation.root if draft is None else draft.root

    def program_shape(self, computation: HloComputation) -> tuple[list[str], str]:
        """The parameter and result shapes of a computation, without layouts."""
        parameters = numbered_parameters(computation, self.listed(computation))
        shapes = [parameter.shape.text_without_layout for parameter in parameters]
        return shapes, self.root(computation).shape.text_without_layout

    def draft(self, computation: HloComputation) -> Draft:
        """A computation of this module, to be changed: it has no text of its own from now on."""
        self._check_open()
        draft = self._drafts.get(computation)
        if draft is None:
            draft = Draft(computation, list(computation.instructions), computation.root)
            self._drafts[computation] = draft
            self.track(computation)
            computation.reader = computation.unread = None
        return draft

    def drafts(self) -> Iterator[Draft]:
        for computation in list(self.module.computations):
            yield self.draft(computation)

    def remove(self, instruction: HloInstruction) -> None:
        self.draft(instruction.parent).instructions.remove(instruction)
        self._removed.add(instruction)

    # Whole computations.

    def copy_computation(
        self, computation: HloComputation, suffix: str, before: HloComputation | None = None
    ) -> Draft:
        """Add a second computation like one, after its original or right before another."""
        original = self.computation(computation)
        self.track(original)
        listed = self.listed(original)
        copy_of: dict[HloInstruction, HloInstruction] = {}
        for instruction in listed:
            copy = copy_of[instruction] = self.copy(instruction, instruction.name)
            copy.operands = tuple([copy_of[operand] for operand in instruction.operands])
            needed = [copy_of[needed] for needed in instruction.control_predecessors]
            copy.control_predecessors = tuple(needed)
        name = self.new_name(original.name, suffix)
        position = original.index + 1 if before is None else self.computation(before).index
        root = copy_of[self.root(original)]
        return self.add(name, original, position, list(copy_of.values()), root)

    def separate(self, made: Draft, suffix: str, *, is_deep: bool = False) -> None:
        """Give a copy and its fusions names of their own; other callees too if it is deep."""
        pending, clone_of = [made], dict[HloComputation, HloComputation]()
        while pending:
            current = pending.pop()
            for instruction in current.instructions:
                instruction.name = self.new_name(instruction.name, suffix)
                called = list(instruction.called_computations)
                for number, callee in enumerate(called):
                    if is_deep and callee not in clone_of:
                        pending.append(self.copy_computation(callee, suffix))
                        clone_of[callee] = pending[-1].computation
                    elif not is_deep and instruction.opcode == "fusion":
                        pending.append(self.copy_computation(callee, suffix, current.computation))
                        called[number] = pending[-1].computation
                    called[number] = clone_of.get(called[number], called[number])
                instruction.called_computations = tuple(called)
                if called or instruction.control_predecessors:
                    relink(instruction)

    def clone_fused(
        self, computation: HloComputation, suffix: str, before: HloComputation | None = None
    ) -> HloComputation:
        """Add a second body for a fusion."""
        made = self.copy_computation(computation, suffix, before)
        self.separate(made, suffix)
        return made.computation

    def copy(self, instruction: HloInstruction, name: str) -> HloInstruction:
        """An instruction like another, in no list yet."""
        return self.note_copy(copy_instruction(instruction, name), instruction)

    def note_copy(self, made: HloInstruction, model: HloInstruction) -> HloInstruction:
        """Remember that an instruction says what another does wherever it was not told otherwise.

        A message knows more of an instruction than its text.
        """
        self._model_of[made] = model
        return made

    def new_name(self, name: str, suffix: str) -> str:
        """A name like another that is free in the whole module."""
        if self._names is None:
            self._names = {instruction.name for instruction in self.given.iter_instructions()}
            self._names.update(self.given.computation_by_name)
        free = unused_name(f"{name}.{suffix}", self._names, "", 2)
        self._names.add(free)
        return free

    def add(
        self,
        name: str,
        like: HloComputation,
        position: int,
        instructions: list[HloInstruction],
        root: HloInstruction,
    ) -> Draft:
        """A new computation at a position among all, on the thread of another."""
        thread = like.execution_thread
        made = HloComputation(self.module, name, position, False, thread, is_fused=like.is_fused)
        for index, instruction in enumerate(instructions):
            instruction.parent, instruction.index = made, index
        made.fill(instructions, numbered_parameters(made, instructions), root)
        self.module.computations.insert(position, made)
        self.renumber()
        return self.draft(made)

    def drop_uncalled(self) -> None:
        """Drop the computations that the entry does not reach."""
        reached, pending = {self.module.entry}, [self.module.entry]
        while pending:
            computation = pending.pop()
            draft = self._drafts.get(computation)
            calls = computation.calls() if draft is None else draft.instructions
            called = {callee for one in calls for callee in one.called_computations} - reached
            reached |= called
            pending += called
        self.module.computations[:] = [one for one in self.module.computations if one in reached]
        self._drafts = {one: draft for one, draft in self._drafts.items() if one in reached}
        self.renumber()

    def renumber(self) -> None:
        """Computations were added or renamed: forget what was known of their names and places."""
        for index, computation in enumerate(self.module.computations):
            computation.index = index
        self.module.__dict__.pop("computation_by_name", None)

    @property
    def header(self) -> dict[str, str]:
        self._check_open()
        return self._header

    def forget_header(self) -> None:
        """The header was changed: forget what was read of it."""
        for name in ("input_output_alias", "buffer_donor", _LAYOUT, "frontend_attributes"):
            self.module.__dict__.pop(name, None)

    def finish(self) -> HloModule:
        """The module; raises `EditError` where it would not be valid."""
        self._check_open()
        self._is_finished = True
        for draft in self._drafts.values():
            draft.finish()
        self._keep_promise()
        self.renumber()
        self.forget_header()
        self.module.origins = self._find_origins()
        return verified(self.module)

    def _find_origins(self) -> Origins | None:
        """The message that the given module was read from, and what is left of it."""
        known = self.given.creation or self.given.origins
        if known is None:
            return None
        header = self.given.attributes if isinstance(known, Creation) else known.header
        places: dict[HloInstruction, tuple[int, str]] = {}
        given_of = {copy: one for one, copy in self._instruction_of.items()}
        for computation in self.module.computations:
            for instruction in () if computation.reader is not None else computation.instructions:
                model = instruction
                while model in self._model_of:
                    model = self._model_of[model]
                model = given_of.get(model, model)
                home = known.computations.get(model.parent)
                if home is not None and model.parent.reader is not None:
                    places[instruction] = home, model.name
                elif isinstance(known, Origins) and model in known.instructions:
                    places[instruction] = known.instructions[model]
        computations = {
            copy: known.computations[one]
            for one, copy in self._computation_of.items()
            if one in known.computations
        }
        return Origins(known.encoded, dict(header), computations, places)

    def _keep_promise(self) -> None:
        """Update the layouts promised to the caller where the entry's differ."""
        given, promised = self.given.entry, self.given.entry_computation_layout
        entry = self.module.entry
        if promised is None or entry not in self._drafts:
            return
        old = [*(parameter.shape for parameter in given.parameters), given.root.shape]
        new = [*(parameter.shape for parameter in entry.parameters), entry.root.shape]
        if old == new:
            return
        shapes = [*promised.parameters, promised.result]
        if len(old) == len(new) == len(shapes):
            new = [
                kept if one == other else other
                for kept, one, other in zip(shapes, old, new, strict=True)
            ]
        self._header[_LAYOUT] = f"{{{tuple_shape(new[:-1]).text}->{new[-1].text}}}"

    def _check_open(self) -> None:
        if self._is_finished:
            raise EditError(f"the changes of module `{self.module.name}` are finished: start again")
