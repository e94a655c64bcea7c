"""Writing in place: of a buffer and each operand, whether it was written over it, and why not.

In: a `MemoryView` and a buffer. Out: one `InPlace` an operand. The reasons are those the planner
goes by: sizes and lives first, then the rules of `hlomem.analysis.alias_rules`, on the module
where there is one, else as far as the opcode tells. What neither tells is said to be unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.alias_rules import why_not_by_opcode, why_not_overwrite
from hlomem.analysis.fused_bodies import FusedBodies
from hlomem.analysis.overwriting import COPY, OTHER_SHAPE, Reading
from hlomem.dump.records import Record
from hlomem.hlo.opcodes import PAYLOAD_OPCODES, opcodes_forwarding
from hlomem.hlo.shape import ShapeIndex
from hlomem.machines.options import Options
from hlomem.report.data import places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloInstruction
    from hlomem.report.data.memory import Buffer, MemoryView

_MAKES_NOTHING = PAYLOAD_OPCODES | opcodes_forwarding("elements", "loop")
UNKNOWN = "nothing in the dump speaks against it; the instruction may not allow it"
ALLOWED = "it may be; it was placed elsewhere"


class InPlace(Record, frozen=True, kw_only=True):
    """An operand, and whether the result was written over it."""

    operand: str
    size: int
    is_shared: bool
    why: str


def iter_in_place(memory: MemoryView, buffer: Buffer) -> Iterator[InPlace]:
    """One operand of a result: whether the result lies where it lies, and if not, why not."""
    if buffer.opcode is None or buffer.opcode in _MAKES_NOTHING:
        return
    seen: set[int] = set()
    for operand in memory.operands(buffer):
        if operand.id in seen or operand.shape.startswith("(") or operand.size == 0:
            continue
        seen.add(operand.id)
        is_shared = buffer.shares_bytes_with(operand)
        why = "it is written over it" if is_shared else _why_not(memory, buffer, operand)
        yield InPlace(operand=operand.name, size=operand.size, is_shared=is_shared, why=why)


def _why_not(memory: MemoryView, buffer: Buffer, operand: Buffer) -> str:
    if operand.color != buffer.color:
        return f"lies in {memory.space_name(operand.color)}"
    if operand.place in {places.CONSTANTS, places.ARGUMENTS}:
        return "is a constant" if operand.place == places.CONSTANTS else "is not donated"
    if operand.size != buffer.size:
        return f"has {operand.size} bytes, not {buffer.size}"
    if operand.end is not None and buffer.start is not None and operand.end > buffer.start:
        return f"is needed until instruction {operand.end}"
    if buffer.opcode == "copy":
        return COPY
    reason = _by_module(memory, buffer, operand)
    if reason is None:
        reason = _by_opcode(memory, buffer, operand)
    if reason is None:
        return UNKNOWN
    return reason or ALLOWED


def _by_module(memory: MemoryView, buffer: Buffer, operand: Buffer) -> str | None:
    """The answer of the planner's rules for the instruction; None where there is no module."""
    placed, read = memory.joined.placed_by_id[buffer.id], memory.joined.placed_by_id[operand.id]
    user = memory.instruction_by_name.get(placed.value.name)
    if user is None or memory.module is None:
        return None
    reasons = [
        _why_not_by_rules(memory, user, number, ShapeIndex(index), ShapeIndex(placed.index))
        for number in read.operand_numbers(user.name)
        for index, value in memory.joined.read_by[user.name, number]
        if value is read and number < len(user.operands)
    ]
    return "" if "" in reasons else next(iter(reasons), None)


def _why_not_by_rules(
    memory: MemoryView,
    user: HloInstruction,
    number: int,
    index: ShapeIndex,
    output_index: ShapeIndex,
) -> str:
    assert memory.module is not None
    operand = user.operands[number]
    part, result = operand.shape.subshape(index), user.shape.subshape(output_index)
    bodies, rules = FusedBodies(), memory.machine.alias_rules(Options(memory.machine))
    return why_not_overwrite(operand, user, output_index, part == result, bodies, rules)


def _by_opcode(memory: MemoryView, buffer: Buffer, operand: Buffer) -> str | None:
    """The answer of the rules for an opcode, as far as the printed line tells how it reads."""
    joined = memory.joined
    placed, read = joined.placed_by_id[buffer.id], joined.placed_by_id[operand.id]
    printed = joined.printed.get(placed.value.name)
    if printed is None:
        return None
    name = read.value.name
    numbers = [number for number, other in enumerate(printed.operands) if other == name]
    if not numbers:
        return None  # it is read under another name, of which no line tells
    users = sum(name in other.operands for other in joined.printed.values())
    reading = Reading(numbers, len(printed.operands), placed.index, users)
    rules = memory.machine.alias_rules(Options(memory.machine))
    reason = why_not_by_opcode(printed.opcode, reading, rules)
    if reason is not None and operand.shape != buffer.shape:
        return OTHER_SHAPE
    is_elsewhere = read.used is not None and len(read.used.positions) > 1
    return None if reason == "" and is_elsewhere else reason
