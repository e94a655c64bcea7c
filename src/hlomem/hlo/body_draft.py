"""The instructions of one computation while they change.

In: a computation of a module that is being changed (`hlomem.hlo.draft`). Out: the same computation
with other instructions. Changes are not checked one by one: `finish` refuses what is no body.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.errors import EditError
from hlomem.hlo.builder import link_attributes, numbered_parameters
from hlomem.hlo.ir import HloComputation, HloInstruction

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape


class Draft(Struct, eq=False):
    """The instructions of a computation that is being changed."""

    computation: HloComputation
    instructions: list[HloInstruction]
    root: HloInstruction

    def position(self, instruction: HloInstruction) -> int:
        return self.instructions.index(instruction)

    def find(self, name: str) -> HloInstruction | None:
        return next(
            (instruction for instruction in self.instructions if instruction.name == name), None
        )

    def users(self, instruction: HloInstruction) -> list[HloInstruction]:
        return [user for user in self.instructions if instruction in user.operands]

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
        texts = link_attributes(opcode, operands, attributes or {}, called, (), name)
        return HloInstruction(
            name,
            shape,
            opcode,
            tuple(operands),
            payload,
            texts,
            self.computation,
            -1,
            tuple(called),
        )

    def put_after(self, earlier: Iterable[HloInstruction], *new: HloInstruction) -> None:
        """Put instructions right after the last of those that they need."""
        position = max([self.position(one) for one in earlier], default=-1) + 1
        self.instructions[position:position] = new

    def put_before(self, later: HloInstruction, *new: HloInstruction) -> None:
        position = self.position(later)
        self.instructions[position:position] = new

    def replace(self, old: HloInstruction, new: HloInstruction) -> None:
        """Take an instruction out; what read it reads another."""
        self.instructions.remove(old)
        if self.root is old:
            self.root = new
        for user in self.users(old):
            user.operands = tuple([new if one is old else one for one in user.operands])

    def drop_dead(self, may_go: Callable[[HloInstruction], bool]) -> None:
        """Drop instructions that no other reads, and those that only they had read."""
        counts = Counter(operand for one in self.instructions for operand in one.operands)
        kept: list[HloInstruction] = []
        for instruction in reversed(self.instructions):
            if counts[instruction] or instruction is self.root or not may_go(instruction):
                kept.append(instruction)
            else:
                counts.subtract(instruction.operands)
        self.instructions = kept[::-1]
        left = set(kept)
        for instruction in kept:
            if not left.issuperset(instruction.control_predecessors):
                needed = [one for one in instruction.control_predecessors if one in left]
                instruction.control_predecessors = tuple(needed)
                relink(instruction)

    def check(self) -> None:
        """Raise unless operands stand before their users, and names are unique."""
        seen: set[HloInstruction] = set()
        names: set[str] = set()
        for instruction in self.instructions:
            self._check(instruction, seen, names)

    def finish(self) -> None:
        """Put the instructions into the computation."""
        self.check()
        for index, instruction in enumerate(self.instructions):
            instruction.index, instruction.users = index, []
        parameters = numbered_parameters(self.computation, self.instructions)
        self.computation.fill(self.instructions, parameters, self.root)

    def _check(self, one: HloInstruction, seen: set[HloInstruction], names: set[str]) -> None:
        """Raise unless an instruction may follow those seen, which it joins."""
        where = f"in computation `{self.computation.name}`"
        for needed in (*one.operands, *one.control_predecessors):
            if needed not in seen:
                problem = f"`{one.name}` would stand before `{needed.name}`, which it needs"
                raise EditError(f"{problem}, {where}")
        if one.name in names:
            raise EditError(f"there would be two instructions `{one.name}` {where}")
        seen.add(one)
        names.add(one.name)


def unused_name(name: str, taken: Container[str], mark: str = ".", first: int = 1) -> str:
    """A name, followed by a mark and a number where it is taken."""
    number, free = first, name
    while free in taken:
        free = f"{name}{mark}{number}"
        number += 1
    return free


def copy_instruction(instruction: HloInstruction, name: str) -> HloInstruction:
    """An instruction like another, with its links, in no list yet."""
    return HloInstruction(
        name,
        instruction.shape,
        instruction.opcode,
        instruction.operands,
        instruction.payload,
        instruction._attributes,  # as above
        instruction.parent,
        -1,
        instruction.called_computations,
        instruction.control_predecessors,
    )


def relink(instruction: HloInstruction) -> None:
    """Let the attributes name what an instruction is linked with now."""
    linked = link_attributes(
        instruction.opcode,
        instruction.operands,
        instruction.attributes,
        instruction.called_computations,
        instruction.control_predecessors,
        instruction.name,
    )
    instruction.set_attributes(linked)
