"""A computation while its instructions change, to be printed and read again.

In: a computation. Out: its text with other instructions. Instructions are copies with links among
themselves, so that the given ones stay as they are; whether the result makes sense is found out by
whoever reads the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.draft import copy_instruction
from hlomem.hlo.ir import HloComputation, HloInstruction
from hlomem.hlo.shape import tuple_shape
from hlomem.hlo.text.body import CONTROL_PREDECESSORS
from hlomem.hlo.text.printer import format_computation
from hlomem.opt.remat.edit import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hlomem.hlo.ir import HloModule
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape


class Names:
    """The names of a module, and new ones."""

    def __init__(self, module: HloModule) -> None:
        self._taken = set(module.computation_by_name)
        for computation in module.computations:
            self._taken.update(one.name for one in computation.instructions)

    def new(self, name: str) -> str:
        """A name like another that nobody has."""
        number, free = 1, f"{name}.{SUFFIX}"
        while free in self._taken:
            number += 1
            free = f"{name}.{SUFFIX}{number}"
        self._taken.add(free)
        return free


class Wrapper:
    """Bodies of fusions of one instruction each: compilers take none bare at this stage."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.bodies: list[BodyDraft] = []
        """They call nothing."""

    def wrap(
        self,
        body: BodyDraft,
        name: str,
        shape: Shape,
        opcode: Opcode,
        operands: Sequence[HloInstruction | int],
        attributes: Mapping[str, str] | None = None,
    ) -> HloInstruction:
        """A fusion of one instruction, in no list yet; an operand that is a number stays inside."""
        inside = BodyDraft.empty(body, self._names.new(f"wrapped_{opcode}"))
        outer = [operand for operand in operands if isinstance(operand, HloInstruction)]
        index_shape = outer[-1].shape if outer else shape.with_layout(None)
        taken: list[HloInstruction] = []
        for operand in operands:
            if isinstance(operand, int):
                zero = inside.make(
                    self._names.new("constant"), index_shape, "constant", payload=str(operand)
                )
                taken.append(zero)
            else:
                number = str(sum(one.opcode == "parameter" for one in taken))
                parameter = inside.make(
                    self._names.new("parameter"), operand.shape, "parameter", payload=number
                )
                taken.append(parameter)
        root = inside.make(self._names.new(opcode), shape, opcode, taken, attributes=attributes)
        inside.instructions, inside.root = [*taken, root], root
        self.bodies.append(inside)
        return body.make(
            self._names.new(name),
            shape,
            "fusion",
            outer,
            attributes={"kind": "kLoop", "calls": f"%{inside.made.name}"},
            called=[inside.made],
        )


class BodyDraft:
    """The instructions of a computation while they change."""

    @classmethod
    def empty(cls, like: BodyDraft, name: str) -> BodyDraft:
        """A body without instructions yet, in the module of another."""
        draft = cls.__new__(cls)
        draft._style = like._style
        draft.made = HloComputation(
            like.made.module, name, -1, False, like.made.execution_thread, is_fused=True
        )
        draft.copy_of, draft.instructions = {}, []
        return draft

    def __init__(self, given: HloComputation, name: str = "") -> None:
        self._style = given.module.style._replace(compact_gte=False, async_sugar=False)
        self.made = HloComputation(
            given.module,
            name or given.name,
            given.index,
            given.is_entry,
            given.execution_thread,
            is_fused=given.is_fused,
        )
        self.copy_of: dict[HloInstruction, HloInstruction] = {}
        for instruction in given.instructions:
            copy = copy_instruction(instruction, instruction.name)
            copy.parent, copy.users = self.made, []
            copy.operands = tuple([self.copy_of[operand] for operand in instruction.operands])
            earlier = [self.copy_of[one] for one in instruction.control_predecessors]
            copy.control_predecessors = tuple(earlier)
            self.copy_of[instruction] = copy
        self.instructions = list(self.copy_of.values())
        self.root = self.copy_of[given.root]

    def make(
        self,
        name: str,
        shape: Shape,
        opcode: Opcode,
        operands: Sequence[HloInstruction] = (),
        *,
        payload: str = "",
        attributes: Mapping[str, str] | None = None,
        called: Sequence[HloComputation] = (),
    ) -> HloInstruction:
        """A new instruction, in no list yet."""
        return HloInstruction(
            name,
            shape,
            opcode,
            tuple(operands),
            payload,
            dict(attributes or {}),
            self.made,
            -1,
            tuple(called),
        )

    def put_behind(self, earlier: Iterable[HloInstruction], *new: HloInstruction) -> None:
        """Put new instructions behind all of those that they need."""
        place = max([self.instructions.index(one) for one in earlier], default=-1) + 1
        self.instructions[place:place] = new

    def put_before(self, later: HloInstruction, *new: HloInstruction) -> None:
        """Put new instructions right before another; elements of the state that they read go up."""
        place = self.instructions.index(later)
        behind = set(self.instructions[place:])
        for needed in dict.fromkeys(operand for one in new for operand in one.operands):
            if needed in behind and needed.opcode == "get-tuple-element":
                [whole] = needed.operands
                if whole.opcode == "parameter":
                    self.instructions.remove(needed)
                    self.put_behind([whole], needed)
        place = self.instructions.index(later)
        self.instructions[place:place] = new

    def set_results(self, results: Sequence[HloInstruction], name: str) -> None:
        """Let the body end in one result, or in a tuple of several."""
        self.root = results[0]
        if len(results) > 1:
            shape = tuple_shape([result.shape for result in results])
            self.root = self.make(name, shape, "tuple", results)
            self.instructions.append(self.root)

    def replace(self, old: HloInstruction, new: HloInstruction) -> None:
        """Take an instruction out; whoever read it reads another."""
        self.instructions.remove(old)
        if self.root is old:
            self.root = new
        for instruction in self.instructions:
            if old in instruction.operands:
                operands = [new if one is old else one for one in instruction.operands]
                instruction.operands = tuple(operands)

    def forget_removed(self) -> None:
        """Let nobody wait for instructions that are gone."""
        left = set(self.instructions)
        for instruction in self.instructions:
            earlier = instruction.control_predecessors
            if any(one not in left for one in earlier):
                kept = tuple([one for one in earlier if one in left])
                instruction.control_predecessors = kept
                if not kept:
                    attributes = dict(instruction.attributes)
                    attributes.pop(CONTROL_PREDECESSORS, None)
                    instruction.set_attributes(attributes)

    def drop_dead(self, may_go: Callable[[HloInstruction], bool]) -> None:
        """Drop what nobody reads, though somebody may wait for it, and what only that had read."""
        read: dict[HloInstruction, int] = {}
        for instruction in self.instructions:
            for needed in instruction.operands:
                read[needed] = read.get(needed, 0) + 1
        kept: list[HloInstruction] = []
        for instruction in reversed(self.instructions):
            if not read.get(instruction) and instruction is not self.root and may_go(instruction):
                for needed in instruction.operands:
                    read[needed] -= 1
            else:
                kept.append(instruction)
        self.instructions = kept[::-1]
        self.forget_removed()

    def is_in_order(self) -> bool:
        """Whether everything stands behind what it reads."""
        seen: set[HloInstruction] = set()
        for instruction in self.instructions:
            if not seen.issuperset(instruction.operands):
                return False
            seen.add(instruction)
        return True

    def text(self) -> str:
        """The text, from the name to the closing brace."""
        parameters = [one for one in self.instructions if one.opcode == "parameter"]
        parameters.sort(key=lambda one: one.parameter_number)
        self.made.fill(self.instructions, parameters, self.root)
        return format_computation(self.made, self._style)
