"""HLO values: what a program computes, where each appears, and who reads it.

Mirrors `service/hlo_value.cc`. A value is defined by one part of one instruction's result and
appears wherever that result is passed on: in tuples, through loops, out of calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NewType

from hlomem.analysis.shape_tree import parts_of

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape, ShapeIndex

ValueId = NewType("ValueId", int)


class HloPosition(NamedTuple):
    """A part of an instruction's result."""

    instruction: HloInstruction
    shape_index: ShapeIndex


class HloUse(NamedTuple):
    """An operand, or a part of one, that reads a value."""

    instruction: HloInstruction
    operand_number: int
    operand_index: ShapeIndex


class HloValue:
    """One value. Compared by identity; complete once dataflow analysis has run."""

    __slots__ = ("id", "index", "instruction", "is_phi", "positions")

    def __init__(
        self, value_id: int, instruction: HloInstruction, index: ShapeIndex, *, is_phi: bool
    ) -> None:
        self.id = ValueId(value_id)
        self.instruction = instruction
        self.index = index
        self.is_phi = is_phi
        self.positions = [HloPosition(instruction, index)]
        """Where it appears; the place of its definition first."""

    def __repr__(self) -> str:
        return f"<value {self.id} {self.instruction.name}{self.index or ''}>"

    @property
    def shape(self) -> Shape:
        """The shape of the part that defines it."""
        shape = self.instruction.shape
        return shape.subshape(self.index) if self.index else shape


class UseFinder:
    """Who reads a value, in the order of XLA (`HloValue::ComputeUses`)."""

    def __init__(self) -> None:
        self._numbers_of: dict[HloInstruction, dict[HloInstruction, list[int]]] = {}

    def uses(self, value: HloValue) -> list[HloUse]:
        """The uses of a value. Passing it on is none, except into a computation's result."""
        uses: list[HloUse] = []
        positions = value.positions
        for instruction, index in positions:
            for user in instruction.users:
                if not may_use_operand_value(user, index) and not (
                    user.is_root and any(user is each for each, _ in positions)
                ):
                    continue
                if len(user.operands) == 1:
                    uses.append(HloUse(user, 0, index))
                else:
                    numbers = self._operand_numbers(user)[instruction]
                    uses += [HloUse(user, number, index) for number in numbers]
        return uses

    def _operand_numbers(self, user: HloInstruction) -> dict[HloInstruction, list[int]]:
        """Where each operand stands; results and collectives have thousands."""
        numbers = self._numbers_of.get(user)
        if numbers is None:
            numbers = self._numbers_of[user] = {}
            for number, operand in enumerate(user.operands):
                numbers.setdefault(operand, []).append(number)
        return numbers


ValueSet = tuple[HloValue, ...]
"""The values one part of a result may hold, by id; several only where several calls meet."""

InstructionValueSet = list[ValueSet]
"""The value sets of all parts of a result, in the order of `parts_of`."""


def may_use_operand_value(user: HloInstruction, index: ShapeIndex) -> bool:
    """Whether an instruction reads the part of its operand at `index`, or just hands it on."""
    opcode = user.opcode
    if opcode in _READS_TOP_ONLY:
        return not index
    return opcode not in _READS_NOTHING


_READS_TOP_ONLY = frozenset({"get-tuple-element", "copy"})
_READS_NOTHING = frozenset({"tuple", "domain"})


def part_number(shape: Shape, index: ShapeIndex) -> int:
    """The place of a part in an `InstructionValueSet`."""
    return parts_of(shape).number_of[index] if index else 0
