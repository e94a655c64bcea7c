"""A dump's files joined by value and by instruction; the contents of missing files are empty."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.base.quantities import AllocationIndex, ByteCount, Offset, Step, ValueId, steps
from hlomem.view.instruction_line import PrintedInstruction, parse_instruction_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.dump.dump import Dump
    from hlomem.dump.records import (
        Allocation,
        AssignedValue,
        LiveRange,
        Peak,
        Position,
        ShapeIndex,
        Use,
        UsedValue,
        Value,
    )
    from hlomem.hlo.opcodes import Opcode

Parts = dict["ShapeIndex", list["ValueId"]]
"""The parts of a result and the ids of the values in each."""


class Read(NamedTuple):
    """An operand, or a part of one, and a value in it."""

    operand: int
    shape_index: ShapeIndex | None
    value: UsedValue


class PlacedValue(Struct, eq=False, gc=False):
    value: AssignedValue
    allocation: Allocation
    life: LiveRange | None
    used: UsedValue | None
    id: ValueId
    index: ShapeIndex
    """The index in its instruction's result."""
    start: Offset
    end: Offset
    """One past its last byte."""

    @property
    def slice(self) -> tuple[AllocationIndex, Offset, ByteCount]:
        return (self.allocation.index, self.value.offset, self.value.size)

    def shares_bytes_with(self, other: PlacedValue) -> bool:
        return self.start < other.end and other.start < self.end

    @property
    def uses(self) -> Sequence[Use]:
        return (self.used.uses if self.used else None) or ()

    @property
    def positions(self) -> Sequence[Position]:
        return self.used.positions if self.used else ()

    @property
    def users(self) -> set[str]:
        return {use.instruction for use in self.uses}

    def operand_numbers(self, user: str) -> list[int]:
        return [use.operand for use in self.uses if use.instruction == user]

    def reads_or_feeds(self, other: PlacedValue) -> bool:
        names = self.value.name, other.value.name
        return bool(self.operand_numbers(names[1]) or other.operand_numbers(names[0]))


def display_name(value: Value) -> str:
    """The name of a value as XLA prints it."""
    if value.index is None:
        return value.name
    return f"{value.name}{{{','.join(map(str, value.index))}}}"


def indexed(name: str, index: ShapeIndex | None) -> str:
    """A part of an instruction's result: `while.5{1}`; the whole by its name alone."""
    return f"{name}{{{','.join(map(str, index))}}}" if index else name


class JoinedDump(Struct, eq=False, dict=True):
    """The values of a dump in its order, and indices of its records."""

    dump: Dump
    placed: list[PlacedValue]
    life_of: dict[tuple[str, ShapeIndex] | str, LiveRange]
    """Use `find_life`."""

    @cached_property
    def allocations(self) -> Sequence[Allocation]:
        return self.dump.assignment.allocations if self.dump.assignment else ()

    @cached_property
    def used(self) -> Sequence[UsedValue]:
        """Every value with its positions and uses, in an allocation or not."""
        return self.dump.values.values if self.dump.values else ()

    @cached_property
    def sequence(self) -> Sequence[str]:
        return self.dump.live_ranges.sequence if self.dump.live_ranges else ()

    @property
    def end(self) -> Step:
        """One past the last step."""
        return Step(len(self.sequence))

    @property
    def peak(self) -> Peak | None:
        return self.dump.live_ranges.peak if self.dump.live_ranges else None

    @cached_property
    def time_of(self) -> dict[str, Step]:
        return dict(zip(self.sequence, steps(len(self.sequence)), strict=True))

    def find_life(self, name: str, index: ShapeIndex | None) -> LiveRange | None:
        """The live range of the value defined by a part of an instruction's result."""
        return self.life_of.get((name, index) if index else name)

    # By value.

    @cached_property
    def used_by_id(self) -> dict[ValueId, UsedValue]:
        return {value.id: value for value in self.used}

    @cached_property
    def placed_by_id(self) -> dict[ValueId, PlacedValue]:
        return {placed.id: placed for placed in self.placed}

    @cached_property
    def placed_by_name(self) -> dict[tuple[str, ShapeIndex], PlacedValue]:
        return {(placed.value.name, placed.index): placed for placed in self.placed}

    def share_bytes(self, one: UsedValue, other: UsedValue) -> bool:
        first, second = self.placed_by_id[one.id], self.placed_by_id[other.id]
        return first.allocation is second.allocation and first.shares_bytes_with(second)

    @cached_property
    def output(self) -> PlacedValue | None:
        """The value a program returns: the last in the allocation of the output's top level."""
        held = [placed for placed in self.placed if placed.allocation.output_shape is not None]
        alive = [(placed.life.start, placed.id, placed) for placed in held if placed.life]
        return max(alive, key=lambda entry: entry[:2])[2] if alive else None

    # By instruction.

    @cached_property
    def text_of(self) -> dict[str, str]:
        return {value.name: value.instruction for value in self.used}

    @cached_property
    def printed(self) -> dict[str, PrintedInstruction]:
        """The parsed lines; those that are not instructions are left out."""
        parsed = ((name, parse_instruction_line(text)) for name, text in self.text_of.items())
        return {name: printed for name, printed in parsed if printed is not None}

    @cached_property
    def names_of_opcode(self) -> dict[Opcode, list[str]]:
        found: dict[Opcode, list[str]] = {}
        for name, printed in self.printed.items():
            found.setdefault(printed.opcode, []).append(name)
        return found

    @cached_property
    def held(self) -> dict[str, Parts]:
        found: dict[str, Parts] = {}
        for value in self.used:
            for position in value.positions:
                parts = found.setdefault(position.instruction, {})
                parts.setdefault(position.index or (), []).append(value.id)
        return found

    @cached_property
    def reads(self) -> dict[str, list[Read]]:
        found: dict[str, list[Read]] = {}
        for value in self.used:
            for use in value.uses or ():
                read = Read(use.operand, use.index, value)
                found.setdefault(use.instruction, []).append(read)
        return found

    @cached_property
    def own_id(self) -> dict[str, ValueId]:
        """The first id of a value that an instruction defines; contiguous within a computation."""
        found: dict[str, ValueId] = {}
        for value in self.used:
            if not value.is_phi:
                found.setdefault(value.name, value.id)
        return found

    @cached_property
    def values_at(self) -> dict[tuple[str, ShapeIndex], list[PlacedValue]]:
        found: dict[tuple[str, ShapeIndex], list[PlacedValue]] = {}
        for placed in self.placed:
            for position in placed.used.positions if placed.used else ():
                found.setdefault((position.instruction, position.index or ()), []).append(placed)
        return found

    @cached_property
    def indices_at(self) -> dict[str, list[ShapeIndex]]:
        found: dict[str, list[ShapeIndex]] = {}
        for instruction, index in self.values_at:
            found.setdefault(instruction, []).append(index)
        return found

    @cached_property
    def read_by(self) -> dict[tuple[str, int], list[tuple[ShapeIndex, PlacedValue]]]:
        """The values, with indices, that an instruction reads as the operand of that number."""
        found: dict[tuple[str, int], list[tuple[ShapeIndex, PlacedValue]]] = {}
        for placed in self.placed:
            for use in (placed.used.uses if placed.used else None) or ():
                key, read = (use.instruction, use.operand), (use.index or (), placed)
                found.setdefault(key, []).append(read)
        return found

    @cached_property
    def users(self) -> set[str]:
        return {name for name, _ in self.read_by}


def join_dump(dump: Dump) -> JoinedDump:
    life_of: dict[tuple[str, ShapeIndex] | str, LiveRange] = {
        (life.instruction, life.index) if life.index else life.instruction: life
        for life in (dump.live_ranges.ranges if dump.live_ranges else ())
    }
    joined = JoinedDump(dump, [], life_of)
    used_by_id = joined.used_by_id
    joined.placed = [
        PlacedValue(
            value,
            allocation,
            life_of.get((value.name, value.index) if value.index else value.name),
            used_by_id.get(value.id),
            value.id,
            value.index or (),
            value.offset,
            Offset(value.offset + value.size),
        )
        for allocation in joined.allocations
        for value in allocation.values
    ]
    return joined
