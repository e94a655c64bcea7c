"""HLO values with their positions and uses. Mirrors `service/hlo_value.cc`.

A value is defined by one part of one result and appears wherever that part is forwarded: in tuples,
through loops, out of calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.hlo.opcodes import opcodes_where

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.base.quantities import ValueId
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape, ShapeIndex


class HloPosition(NamedTuple):
    instruction: HloInstruction
    shape_index: ShapeIndex


class HloUse(Struct, frozen=True):
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
    """Its definition first."""

    def __repr__(self) -> str:
        return f"<value {self.id} {self.instruction.name}{self.index or ''}>"


class _Readers(Struct, frozen=True):
    """The possible readers of one instruction's result, in the order of its users."""

    of_whole: list[HloInstruction]
    """Users that read the top of the result, and `passes_on`."""
    of_parts: list[HloInstruction]
    """Users that read a part below the top, and `passes_on`."""
    passes_on: HloInstruction | None
    """The computation's root, if it is a user that only forwards its operand."""


class UseFinder:
    """Finds the uses of values, in XLA's order (`HloValue::ComputeUses`).

    All values of a large tuple share its users, so users that only take an element out are filtered
    once per instruction, not once per value.
    """

    def __init__(
        self,
        instructions: Iterable[HloInstruction],
        reordered: Mapping[HloInstruction, list[HloInstruction]],
    ) -> None:
        """`reordered` holds users that are not in the order of the text."""
        self._reordered = reordered
        self.passed_on = {
            operand
            for instruction in instructions
            if instruction.opcode in _PASSES_ON
            for operand in instruction.operands
        }
        """The instructions with users that only forward the result."""
        self._numbers_of: dict[HloInstruction, dict[HloInstruction, list[int]]] = {}
        self._readers_of: dict[HloInstruction, _Readers] = {}

    def readers(self, value: HloValue) -> list[list[HloInstruction]]:
        """The readers of a value at each of its positions."""
        find = self.readers_at
        return [find(instruction, index, value) for instruction, index in value.positions]

    def readers_at(
        self, instruction: HloInstruction, index: ShapeIndex, value: HloValue
    ) -> list[HloInstruction]:
        """The users that read a value at one of its positions, not just forward it."""
        listed = self._reordered.get(instruction) or instruction.users
        if instruction not in self.passed_on:
            return listed
        readers = self._readers_of.get(instruction)
        if readers is None:
            readers = self._readers_of[instruction] = _find_readers(instruction, listed)
        users = readers.of_parts if index else readers.of_whole
        root = readers.passes_on
        if root is None or may_use_operand_value(root, index):
            return users
        is_returned = any(root is holder for holder, _ in value.positions)
        return users if is_returned else [user for user in users if user is not root]

    def uses(self, value: HloValue) -> list[HloUse]:
        """The uses of a value; forwarding counts only into a computation's result."""
        return [
            HloUse(user, number, index)
            for (operand, index), users in zip(value.positions, self.readers(value), strict=True)
            for user in users
            for number in self.operand_numbers(user, operand)
        ]

    def operand_numbers(self, user: HloInstruction, operand: HloInstruction) -> Sequence[int]:
        operands = user.operands
        if len(operands) == 1:
            return (0,)
        if len(operands) < _MANY_OPERANDS:
            if operands.count(operand) == 1:
                return (operands.index(operand),)
            return [number for number, other in enumerate(operands) if other is operand]
        # Tuples and collectives have thousands: scan them once.
        numbers = self._numbers_of.get(user)
        if numbers is None:
            numbers = self._numbers_of[user] = {}
            for number, other in enumerate(operands):
                numbers.setdefault(other, []).append(number)
        return numbers[operand]


_MANY_OPERANDS = 16  # from which a table pays


def _find_readers(instruction: HloInstruction, users: list[HloInstruction]) -> _Readers:
    root = instruction.parent.root
    return _Readers(
        [user for user in users if user.opcode not in _READS_NOTHING or user is root],
        [user for user in users if user.opcode not in _PASSES_ON or user is root],
        root if root.opcode in _PASSES_ON and root in users else None,
    )


ValueSet = tuple[HloValue, ...]
"""The values of one part of a result, by id; several only with several callers."""

InstructionValueSet = list[ValueSet]
"""The value sets of all parts of a result, in the order of `Shape.parts`."""


def may_use_operand_value(user: HloInstruction, index: ShapeIndex) -> bool:
    """Whether an instruction reads the part of its operand at `index`, not just forwards it."""
    opcode = user.opcode
    if opcode in _READS_TOP_ONLY:
        return not index
    return opcode not in _READS_NOTHING


_READS_TOP_ONLY = opcodes_where(lambda traits: traits.reads == "top")
_READS_NOTHING = opcodes_where(lambda traits: traits.reads == "nothing")
_PASSES_ON = _READS_TOP_ONLY | _READS_NOTHING


def part_number(shape: Shape, index: ShapeIndex) -> int:
    """The index of a part in an `InstructionValueSet`."""
    return shape.parts.number_of[index] if index else 0
