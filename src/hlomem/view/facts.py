"""What a dump says about each instruction of its program, looked up by name.

In: a `Dump` with its three parts. Out: `Facts`. Places (offsets, sizes and numbers of allocations)
are here for one purpose: `shares_place`, the evidence that one value was written over another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.hlo.opcodes import CALL_IN_TEXT, NAME_IN_TEXT, PAYLOAD_OPCODES, as_opcode
from hlomem.hlo.text.attributes import nested_brackets
from hlomem.hlo.text.shape_parser import INDEX_COMMENT, parse_shape_text

if TYPE_CHECKING:
    from hlomem.dump.dump import Dump
    from hlomem.dump.records import (
        Allocation,
        AssignedValue,
        Assignment,
        LiveRange,
        LiveRanges,
        ShapeIndex,
        UsedValue,
        Values,
    )
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape

_SHAPE = nested_brackets(r"\(", 8) + r"|[a-z][a-z0-9]*+\[[^\[\]]*+\](?:\{[^{}]*+\})?"
_LINE = re.compile(rf"%?(?P<name>\S++) = (?P<shape>{_SHAPE}) (?P<opcode>[a-z][\w\-]*+)\(", re.ASCII)
_OPERAND = re.compile(rf"(?:(?P<shape>{_SHAPE}) )?%(?P<name>[\w.\-]++)", re.ASCII)
_BRACKET = re.compile(r"[()]")


class Line(NamedTuple):
    """The text of an instruction, taken apart."""

    text: str
    shape: Shape
    opcode: Opcode
    operands: tuple[str, ...]
    operand_shapes: tuple[str | None, ...]
    """What the text says of them; None where it does not."""
    tail: str
    """The attributes."""

    @property
    def number(self) -> int | None:
        """Which parameter it is."""
        inner = self.text.partition(" parameter(")[2] if self.opcode == "parameter" else ""
        return int(inner.partition(")")[0]) if inner else None

    @property
    def callees(self) -> dict[str, list[str]]:
        """The computations it calls, by attribute."""
        return {
            attribute: NAME_IN_TEXT.findall(names or name)
            for attribute, names, name in CALL_IN_TEXT.findall(self.tail)
        }


Parts = dict["ShapeIndex", list[int]]
"""The parts of a result and the ids of the values in each."""


class Read(NamedTuple):
    """An operand, or a part of one, and a value it may hold."""

    operand: int
    shape_index: ShapeIndex | None
    value: UsedValue


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A dump, by instruction."""

    values: Values
    live_ranges: LiveRanges
    assignment: Assignment
    lines: dict[str, Line]
    """The instructions whose text the dump shows: those that define a value."""
    time_of: dict[str, int]
    """When each runs; those inside reductions and the like have no time."""
    by_id: dict[int, UsedValue] = field(default_factory=dict)
    held: dict[str, Parts] = field(default_factory=dict)
    """The values in each part of a result."""
    reads: dict[str, list[Read]] = field(default_factory=dict)
    """What the operands of an instruction hold."""
    own_id: dict[str, int] = field(default_factory=dict)
    """The first id an instruction gave to a value of its own; those of one computation are in one
    stretch."""
    life_of: dict[tuple[str, ShapeIndex], LiveRange] = field(default_factory=dict)
    """When the value defined by a part of a result was alive."""
    places: dict[int, tuple[Allocation, AssignedValue]] = field(default_factory=dict)
    """Where the values lie."""

    def shares_place(self, one: UsedValue, other: UsedValue) -> bool:
        """Whether two values have bytes in common."""
        (allocation, first), (other_allocation, second) = self.places[one.id], self.places[other.id]
        return (
            allocation is other_allocation
            and first.offset < second.offset + second.size
            and second.offset < first.offset + first.size
        )


def read_facts(dump: Dump) -> Facts:
    """Look through a dump; `InputError` where it lacks a part."""
    assignment, values, live_ranges = dump.assignment, dump.values, dump.live_ranges
    if assignment is None or values is None or live_ranges is None:
        problem = "needs allocations, values and live ranges to plan again"
        raise InputError(f"{visible(dump.name)}: {problem}")
    facts = Facts(
        values,
        live_ranges,
        assignment,
        {value.name: read_line(value.instruction) for value in values.values},
        {name: time for time, name in enumerate(live_ranges.sequence)},
    )
    for value in values.values:
        facts.by_id[value.id] = value
        if not value.is_phi:
            facts.own_id.setdefault(value.name, value.id)
        for position in value.positions:
            parts = facts.held.setdefault(position.instruction, {})
            parts.setdefault(position.index or (), []).append(value.id)
        for use in value.uses or ():
            facts.reads.setdefault(use.instruction, []).append(Read(use.operand, use.index, value))
    facts.life_of.update({(each.instruction, each.index): each for each in live_ranges.ranges})
    for allocation in assignment.allocations:
        facts.places.update({each.id: (allocation, each) for each in allocation.values})
    return facts


def read_line(text: str) -> Line:
    """Take the text of an instruction apart."""
    match = _LINE.match(text)
    if match is None:
        raise InputError(f"not an instruction: `{visible(text[:80])}`")
    end = _closing(text, match.end())
    opcode = as_opcode(match["opcode"])
    operands: list[re.Match[str]] = []
    if opcode not in PAYLOAD_OPCODES:
        operands = list(_OPERAND.finditer(INDEX_COMMENT.sub("", text[match.end() : end])))
    return Line(
        text,
        parse_shape_text(match["shape"]),
        opcode,
        tuple([each["name"] for each in operands]),
        tuple([each["shape"] for each in operands]),
        text[end + 1 :],
    )


def _closing(text: str, start: int) -> int:
    """Where the parenthesis closes that was opened before `start`."""
    depth = 1
    for match in _BRACKET.finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.start()
    return len(text)
