"""A dump seen as a plan: every value with its place, its life, and what its text says.

In: a `Dump`. Out: a `Plan`, which only joins what the files say about the same value; it judges
nothing. A value's live range is found by its instruction and index, its uses by its id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.hlo.opcodes import Opcode, as_opcode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.dump.dump import Dump
    from hlomem.dump.records import (
        Allocation,
        AssignedValue,
        LiveRange,
        ShapeIndex,
        UsedValue,
        Value,
    )

# `%name = shape opcode(operands), attributes`. No opcode has one letter, `b(...)` is a shape.
_TEXT = re.compile(r"(?:ROOT )?%?[^ ]++ = ([^ ]*+(?: [^ ]*+)*?) ([a-z][a-z0-9-]+)\(")
_OPERAND = re.compile(r"%([\w.-]+)")
_PARENTHESIS = re.compile(r"[()]")
_PAIRS = "output_to_operand_aliasing={"
_PAIR = re.compile(r"\{([\d, ]*)\}: \((\d+), \{([\d, ]*)\}")
_SOURCE_FILE = re.compile(r'source_file="((?:[^"\\]|\\.)*)"(?: source_line=(\d+))?')
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_SLICE = re.compile(r"\[(\d+):")
_THREAD = re.compile(r'async_execution_thread="([^"]*)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')


class Text(Struct, eq=False, dict=True):
    """The defining instruction of a value, as far as its printed text tells."""

    shape: str
    opcode: Opcode
    instruction: str
    start: int
    """Where its operands begin."""

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of what it reads."""
        return tuple(_OPERAND.findall(self.instruction, self.start, self._end))

    @property
    def tail(self) -> str:
        """The attributes."""
        return self.instruction[self._end :]

    @cached_property
    def _end(self) -> int:
        return _closing(self.instruction, self.start)

    @property
    def target(self) -> str:
        """The function a custom call names."""
        found = _TARGET.search(self.tail)
        return found.group(1) if found else ""

    @property
    def thread(self) -> str:
        """The thread an asynchronous operation names; empty for the main one."""
        found = _THREAD.search(self.tail)
        return found.group(1) if found else ""

    @property
    def slice_starts(self) -> tuple[int, ...]:
        """Where a slice begins in each dimension; empty for other instructions."""
        _, found, rest = self.tail.partition("slice={")
        return tuple(map(int, _SLICE.findall(rest.partition("}")[0]))) if found else ()

    @property
    def operand_pairs(self) -> tuple[tuple[ShapeIndex, int, ShapeIndex], ...]:
        """`output_to_operand_aliasing`: output index, operand number, index in the operand."""
        if _PAIRS not in self.instruction:
            return ()
        rest = self.tail.partition(_PAIRS)[2]
        return tuple(
            (_index(output), int(operand), _index(inside))
            for output, operand, inside in _PAIR.findall(rest.partition(")}")[0] + ")}")
        )


def _index(text: str) -> ShapeIndex:
    return tuple(int(part) for part in text.split(",") if part.strip())


def parse_text(instruction: str) -> Text | None:
    """The parts of a printed instruction; None where it is not one."""
    match = _TEXT.match(instruction)
    return None if match is None else Text(match[1], as_opcode(match[2]), instruction, match.end())


def _closing(text: str, start: int) -> int:
    """Where the parenthesis closes that was opened before `start`."""
    end = text.find(")", start)
    if end >= 0 and text.find("(", start, end) < 0:
        return end
    depth = 1
    for match in _PARENTHESIS.finditer(text, start):
        depth += 1 if match.group() == "(" else -1
        if depth == 0:
            return match.start()
    return len(text)


class Placed(Struct, eq=False, gc=False):
    """A value in an allocation, with what the other files say about it."""

    value: AssignedValue
    allocation: Allocation
    life: LiveRange | None
    used: UsedValue | None

    @property
    def id(self) -> int:
        """The number XLA gave the value."""
        return self.value.id

    @property
    def start(self) -> int:
        """Its first byte in the allocation."""
        return self.value.offset

    @property
    def end(self) -> int:
        """One past its last byte."""
        return self.value.offset + self.value.size

    @property
    def index(self) -> ShapeIndex:
        """Where in its instruction's result it stands."""
        return self.value.index or ()

    @property
    def slice(self) -> tuple[int, int, int]:
        """Allocation, offset and size: the exact place."""
        return (self.allocation.index, self.value.offset, self.value.size)

    def shares_bytes_with(self, other: Placed) -> bool:
        """Whether a byte belongs to both (of one allocation)."""
        return self.start < other.end and other.start < self.end

    @property
    def users(self) -> set[str]:
        """The instructions that read it."""
        return {use.instruction for use in (self.used.uses if self.used else None) or ()}

    def operand_numbers(self, user: str) -> list[int]:
        """As which operands an instruction reads it."""
        uses = self.used.uses if self.used else None
        return [use.operand for use in uses or () if use.instruction == user]


def display_name(value: Value) -> str:
    """The name of a value as XLA prints it."""
    if value.index is None:
        return value.name
    return f"{value.name}{{{','.join(map(str, value.index))}}}"


def source_of(instruction: str) -> str:
    """Where in the program an instruction comes from."""
    if found := _SOURCE_FILE.search(instruction):
        return found.group(1) + (f":{found.group(2)}" if found.group(2) else "")
    found = _OP_NAME.search(instruction)
    return found.group(1) if found else ""


@dataclass(slots=False, eq=False)
class Plan:
    """Every value of a dump with its place, in the order of the dump."""

    dump: Dump
    allocations: Sequence[Allocation]
    placed: list[Placed]
    time_of: dict[str, int] = field(default_factory=dict)
    """Where an instruction stands in the sequence."""
    sequence: Sequence[str] = ()

    @cached_property
    def values_at(self) -> dict[tuple[str, ShapeIndex], list[Placed]]:
        """The values that appear at a position: an instruction and an index of its result."""
        found: dict[tuple[str, ShapeIndex], list[Placed]] = {}
        for placed in self.placed:
            for position in placed.used.positions if placed.used else ():
                found.setdefault((position.instruction, position.index or ()), []).append(placed)
        return found

    @cached_property
    def indices_at(self) -> dict[str, list[ShapeIndex]]:
        """The indices at which values appear in an instruction's result."""
        found: dict[str, list[ShapeIndex]] = {}
        for instruction, index in self.values_at:
            found.setdefault(instruction, []).append(index)
        return found

    @cached_property
    def text_of(self) -> dict[str, Text]:
        """What the text of an instruction says, for those that define a value."""
        texts: dict[str, Text] = {}
        for placed in self.placed:
            if placed.used and placed.value.name not in texts:
                text = parse_text(placed.used.instruction)
                if text is not None:
                    texts[placed.value.name] = text
        return texts

    @cached_property
    def users(self) -> set[str]:
        """The instructions that read something; no parameter is among them."""
        return {name for name, _ in self.read_by}

    @cached_property
    def read_by(self) -> dict[tuple[str, int], list[tuple[ShapeIndex, Placed]]]:
        """The values an instruction reads as its operand of that number, with their indices."""
        found: dict[tuple[str, int], list[tuple[ShapeIndex, Placed]]] = {}
        for placed in self.placed:
            for use in (placed.used.uses if placed.used else None) or ():
                found.setdefault((use.instruction, use.operand), []).append(
                    (use.index or (), placed)
                )
        return found

    @cached_property
    def output(self) -> Placed | None:
        """The value a program returns: the last to be put where the output's top level is."""
        held = [each for each in self.placed if each.allocation.output_shape is not None]
        alive = [(each.life.start, each.id, each) for each in held if each.life is not None]
        return max(alive, key=lambda each: each[:2])[2] if alive else None


def build_plan(dump: Dump) -> Plan:
    """What a dump says, joined by value."""
    live, values = dump.live_ranges, dump.values
    # Most values are all of an instruction's result: its name is key enough.
    life_of = {
        (each.instruction, each.index) if each.index else each.instruction: each
        for each in (live.ranges if live else ())
    }
    used_by_id = {each.id: each for each in values.values} if values else {}
    allocations = dump.assignment.allocations if dump.assignment else ()
    placed = [
        Placed(
            value,
            each,
            life_of.get((value.name, value.index) if value.index else value.name),
            used_by_id.get(value.id),
        )
        for each in allocations
        for value in each.values
    ]
    sequence = live.sequence if live else ()
    times = {name: moment for moment, name in enumerate(sequence)}
    return Plan(dump, allocations, placed, times, sequence)
