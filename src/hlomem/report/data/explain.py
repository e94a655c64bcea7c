"""One buffer: purpose, size, lifetime, location, and by rules why it is not in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.alias_rules import why_not_by_opcode, why_not_overwrite
from hlomem.analysis.fused_bodies import FusedBodies
from hlomem.analysis.machine_rules import rules_of
from hlomem.analysis.overwriting import COPY, OTHER_SHAPE, Reading
from hlomem.dump.records import Record
from hlomem.hlo.opcodes import PAYLOAD_OPCODES, opcodes_forwarding
from hlomem.hlo.shape import ShapeIndex
from hlomem.report.data import allocation_kinds, roles
from hlomem.report.data.allocation_kinds import kind_of
from hlomem.report.data.padding import GrownDimension, growths
from hlomem.report.data.scoped import ScopedRow, build_scoped, find_scoped
from hlomem.view.joined import PlacedValue, indexed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloInstruction
    from hlomem.report.data.lines import Frame
    from hlomem.report.data.memory import Buffer, MemoryView


_MAKES_NOTHING = PAYLOAD_OPCODES | opcodes_forwarding("elements", "loop")
UNKNOWN = "nothing in the dump speaks against it; the instruction may not allow it"
ALLOWED = "it may be; it was placed elsewhere"


class InPlace(Record, frozen=True, kw_only=True):
    operand: str
    size: int
    is_shared: bool
    why: str


def iter_in_place(memory: MemoryView, buffer: Buffer) -> Iterator[InPlace]:
    """Each operand of a buffer: whether the result overwrites it, and if not, why not."""
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
    if operand.place in {allocation_kinds.CONSTANTS, allocation_kinds.ARGUMENTS}:
        return "is a constant" if operand.place == allocation_kinds.CONSTANTS else "is not donated"
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
    """The answer of the planner's rules for the instruction; None without a module."""
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
    bodies, rules = FusedBodies(), rules_of(memory.machine)
    return why_not_overwrite(operand, user, output_index, part == result, bodies, rules)


def _by_opcode(memory: MemoryView, buffer: Buffer, operand: Buffer) -> str | None:
    """The answer of the rules for an opcode; None if the printed line does not tell."""
    joined = memory.joined
    placed, read = joined.placed_by_id[buffer.id], joined.placed_by_id[operand.id]
    printed = joined.printed.get(placed.value.name)
    if printed is None:
        return None
    name = read.value.name
    numbers = [number for number, other in enumerate(printed.operands) if other == name]
    if not numbers:
        return None  # it is read under another name
    users = sum(name in other.operands for other in joined.printed.values())
    reading = Reading(numbers, len(printed.operands), placed.index, users)
    rules = rules_of(memory.machine)
    reason = why_not_by_opcode(printed.opcode, reading, rules)
    if reason is not None and operand.shape != buffer.shape:
        return OTHER_SHAPE
    is_elsewhere = read.used is not None and len(read.used.positions) > 1
    return None if reason == "" and is_elsewhere else reason


class Neighbour(Record, frozen=True, kw_only=True):
    name: str
    offset: int
    size: int
    start: int | None
    end: int | None
    when: str
    """`before`, `after`, or `together` with the explained buffer."""
    why: str = ""
    """Why they may share bytes at the same time."""


class Explanation(Record, frozen=True, kw_only=True):
    buffer: Buffer
    allocation_kind: str
    allocation_size: int
    space: str
    meaning: str
    instruction: str
    frames: tuple[Frame, ...]
    """The call stack, innermost first."""
    growths: tuple[GrownDimension, ...]
    also_known_as: tuple[str, ...]
    """Other instructions that contain or forward it: tuples, loops, bitcasts."""
    readers: tuple[str, ...]
    """In schedule order."""
    first: str
    """Why it is alive from its first step on."""
    last: str
    """Why until its last."""
    loops: tuple[str, ...]
    neighbours: tuple[Neighbour, ...]
    in_place: tuple[InPlace, ...]
    scoped: ScopedRow | None = None
    """VMEM its instruction uses while it runs; None if none, or it is not known."""


def explain(memory: MemoryView, buffer: Buffer) -> Explanation:
    placed = memory.joined.placed_by_id[buffer.id]
    times = memory.joined.time_of
    return Explanation(
        buffer=buffer,
        allocation_kind=kind_of(placed.allocation),
        allocation_size=placed.allocation.size,
        space=memory.space_name(buffer.color),
        meaning=roles.MEANING[buffer.role],
        instruction=placed.used.instruction if placed.used else "",
        frames=memory.frames(buffer),
        growths=growths(buffer.shape, buffer.size) if buffer.padding else (),
        also_known_as=tuple(
            indexed(position.instruction, position.index or ())
            for position in placed.positions
            if position.instruction != placed.value.name
        ),
        readers=tuple(sorted(placed.users, key=lambda name: (times.get(name, -1), name))),
        first=_why_from(memory, placed, buffer),
        last=_why_until(memory, placed, buffer),
        loops=tuple(_loops(memory, placed, buffer)),
        neighbours=tuple(_neighbours(memory, placed, buffer)),
        in_place=tuple(iter_in_place(memory, buffer)),
        scoped=find_scoped(build_scoped(memory), placed.value.name),
    )


def _why_from(memory: MemoryView, placed: PlacedValue, buffer: Buffer) -> str:
    if buffer.start is None:
        return "the dump has no live range for it"
    if buffer.parameter is not None and buffer.opcode == "parameter":
        return "it is an argument"
    defined = memory.joined.time_of.get(placed.value.name)
    if defined == buffer.start:
        return f"{placed.value.name} writes it"
    when = f"at instruction {defined}, in a computation that begins before"
    return f"{placed.value.name} writes it {when}"


def _why_until(memory: MemoryView, placed: PlacedValue, buffer: Buffer) -> str:
    if buffer.end is None:
        return ""
    joined = memory.joined
    if buffer.end == memory.steps:
        if placed.allocation.maybe_live_out:
            return "the caller gets it" + (f" as {buffer.result}" if buffer.result else "")
        if placed.allocation.parameter is not None:
            return "it is an argument that was not donated: nothing may be written over it"
    users = [use.instruction for use in placed.uses]
    last = [user for user in users if joined.time_of.get(user) == buffer.end]
    if last:
        return f"{last[0]} reads it"
    following = [
        member.value.name
        for member in memory.family(placed)
        if member is not placed and member.life and member.life.start == buffer.end
    ]
    if following:
        return f"from then on its bytes are {following[0]}, which must share its location"
    parts = [
        indexed(position.instruction, position.index or ())
        for position in placed.positions
        if joined.time_of.get(position.instruction) == buffer.end
    ]
    if parts:
        return f"it is {parts[0]}"
    running = joined.sequence[buffer.end] if buffer.end < memory.steps else "the program"
    return f"the computation that {running} belongs to needs it until then"


def _loops(memory: MemoryView, placed: PlacedValue, buffer: Buffer) -> Iterator[str]:
    joined = memory.joined
    positions = {position.instruction for position in placed.positions}
    for loop in memory.structure.loops:
        first = joined.time_of[loop.condition_parameter]
        last = joined.time_of[loop.instruction]
        if loop.instruction in positions:
            yield f"carried by {loop.instruction}"
        elif buffer.start is not None and buffer.end is not None:
            if first <= buffer.start and buffer.end < last:
                yield f"inside {loop.instruction}"
            elif buffer.start < first and last <= buffer.end:
                yield f"alive through {loop.instruction}"


def _neighbours(memory: MemoryView, placed: PlacedValue, buffer: Buffer) -> Iterator[Neighbour]:
    """The other owners of its bytes, by first step."""
    family = {member.id for member in memory.family(placed)}
    others = [
        other
        for other in memory.buffers_in(buffer.allocation)
        if other.id != buffer.id and buffer.shares_bytes_with(other)
    ]
    for neighbour in sorted(others, key=lambda other: (other.start or 0, other.id)):
        when = _when(buffer, neighbour)
        why = "another version of the same value" if neighbour.id in family else "written in place"
        yield Neighbour(
            name=neighbour.name,
            offset=neighbour.offset,
            size=neighbour.size,
            start=neighbour.start,
            end=neighbour.end,
            when=when,
            why=why if when == "together" else "",
        )


def _when(buffer: Buffer, other: Buffer) -> str:
    if buffer.start is not None and other.end is not None and other.end < buffer.start:
        return "before"
    if buffer.end is not None and other.start is not None and other.start > buffer.end:
        return "after"
    return "together"
