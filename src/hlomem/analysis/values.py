"""HLO values: the results of a program, with their positions and uses.

Mirrors `service/hlo_value.cc`. A value is defined by one part of one instruction's result and
appears wherever that result is passed on: in tuples, through loops, out of calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.named_tuples import NamedTuple
from hlomem.hlo.opcodes import opcodes_where

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.base.quantities import ValueId
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape, ShapeIndex


class HloPosition(NamedTuple):
    """A part of an instruction's result."""

    instruction: HloInstruction
    shape_index: ShapeIndex


class HloUse(NamedTuple):
    """An operand, or a part of one, that reads a value."""

    instruction: HloInstruction
    operand_number: int
    operand_index: ShapeIndex


class HloValue(Struct, eq=False):
    """One value. Compared by identity; complete once dataflow analysis has run."""

    id: ValueId
    instruction: HloInstruction
    index: ShapeIndex
    shape: Shape
    """The shape of the part that defines it."""
    is_phi: bool
    positions: list[HloPosition]
    """The positions it appears at; that of its definition first."""

    def __repr__(self) -> str:
        return f"<value {self.id} {self.instruction.name}{self.index or ''}>"


class _Readers(NamedTuple):
    """The possible readers of one instruction's result, in the order of its users."""

    of_whole: list[HloInstruction]
    """Users that read the top of the result, and `passes_on`."""
    of_parts: list[HloInstruction]
    """Users that read a part below the top, and `passes_on`."""
    passes_on: HloInstruction | None
    """The computation's root, if it is a user that just hands its operand on."""


class UseFinder:
    """Finds the uses of a value, in XLA's order (`HloValue::ComputeUses`).

    A value that is passed on through a large tuple appears beside thousands of others, and each of
    them has all the tuple's users. So users that merely take an element out are sorted out once per
    instruction, not once per value.
    """

    def __init__(
        self,
        instructions: Iterable[HloInstruction],
        reordered: Mapping[HloInstruction, list[HloInstruction]],
    ) -> None:
        """`reordered` holds the users that do not stand in the order of the text."""
        self._reordered = reordered
        self.passed_on = {
            operand
            for instruction in instructions
            if instruction.opcode in _PASSES_ON
            for operand in instruction.operands
        }
        """The instructions whose results some users just hand on."""
        self._numbers_of: dict[HloInstruction, dict[HloInstruction, list[int]]] = {}
        self._readers_of: dict[HloInstruction, _Readers] = {}

    def readers(self, value: HloValue) -> list[list[HloInstruction]]:
        """The readers of a value at each of its positions."""
        find = self.readers_at
        return [find(instruction, index, value) for instruction, index in value.positions]

    def readers_at(
        self, instruction: HloInstruction, index: ShapeIndex, value: HloValue
    ) -> list[HloInstruction]:
        """The users that read a value at one of its positions, and do not just hand it on."""
        listed = self._reordered.get(instruction) or instruction.users
        if instruction not in self.passed_on:
            return listed
        readers = self._readers_of.get(instruction)
        if readers is None:
            readers = self._readers_of[instruction] = _find_readers(instruction, listed)
        users = readers.of_parts if index else readers.of_whole
        root = readers.passes_on
        if root is not None and not _uses_at_root(root, index, value):
            users = [user for user in users if user is not root]
        return users

    def uses(self, value: HloValue) -> list[HloUse]:
        """The uses of a value. Passing it on is none, except into a computation's result."""
        return [
            HloUse(user, number, index)
            for (operand, index), users in zip(value.positions, self.readers(value), strict=True)
            for user in users
            for number in self.operand_numbers(user, operand)
        ]

    def operand_numbers(self, user: HloInstruction, operand: HloInstruction) -> Sequence[int]:
        """The operand numbers at which an instruction has an operand."""
        operands = user.operands
        if len(operands) == 1:
            return (0,)
        if len(operands) < _MANY_OPERANDS:
            if operands.count(operand) == 1:
                return (operands.index(operand),)
            return [number for number, other in enumerate(operands) if other is operand]
        # Results and collectives have thousands: look through them once.
        numbers = self._numbers_of.get(user)
        if numbers is None:
            numbers = self._numbers_of[user] = {}
            for number, other in enumerate(operands):
                numbers.setdefault(other, []).append(number)
        return numbers[operand]


_MANY_OPERANDS = 16  # from here on a table is worth its making


def _find_readers(instruction: HloInstruction, users: list[HloInstruction]) -> _Readers:
    """The readers of a result and of its parts."""
    root = instruction.parent.root
    return _Readers(
        [user for user in users if user.opcode not in _READS_NOTHING or user is root],
        [user for user in users if user.opcode not in _PASSES_ON or user is root],
        root if root.opcode in _PASSES_ON and root in users else None,
    )


def _uses_at_root(root: HloInstruction, index: ShapeIndex, value: HloValue) -> bool:
    """Whether a root that hands its operand on uses a value: reads it, or returns it."""
    return may_use_operand_value(root, index) or any(
        root is instruction for instruction, _ in value.positions
    )


ValueSet = tuple[HloValue, ...]
"""The values one part of a result may hold, by id; several only where several calls meet."""

InstructionValueSet = list[ValueSet]
"""The value sets of all parts of a result, in the order of `Shape.parts`."""


def may_use_operand_value(user: HloInstruction, index: ShapeIndex) -> bool:
    """Whether an instruction reads the part of its operand at `index`, or just hands it on."""
    opcode = user.opcode
    if opcode in _READS_TOP_ONLY:
        return not index
    return opcode not in _READS_NOTHING


_READS_TOP_ONLY = opcodes_where(lambda traits: traits.reads == "top")
_READS_NOTHING = opcodes_where(lambda traits: traits.reads == "nothing")
_PASSES_ON = _READS_TOP_ONLY | _READS_NOTHING


def part_number(shape: Shape, index: ShapeIndex) -> int:
    """The place of a part in an `InstructionValueSet`."""
    return shape.parts.number_of[index] if index else 0
