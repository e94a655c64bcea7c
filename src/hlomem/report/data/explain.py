"""One buffer explained: why it exists, why this size, why so long, why there, why not in place.

In: a `MemoryView` and a buffer. Out: facts, each with the names and steps it rests on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.dump.records import Record
from hlomem.report.data import roles
from hlomem.report.data.in_place import InPlace, iter_in_place
from hlomem.report.data.padding import Growth, growths
from hlomem.report.data.places import kind_of
from hlomem.view.joined import PlacedValue, indexed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.lines import Frame
    from hlomem.report.data.memory import Buffer, MemoryView


class Neighbour(Record, frozen=True, kw_only=True):
    """A buffer that holds some of the same bytes."""

    name: str
    offset: int
    size: int
    start: int | None
    end: int | None
    when: str
    """`before`, `after`, or `together` with the buffer that is explained."""
    why: str = ""
    """Why they may be there together."""


class Explanation(Record, frozen=True, kw_only=True):
    """The explanation of one buffer."""

    buffer: Buffer
    allocation_kind: str
    """The purpose of its allocation."""
    allocation_size: int
    space: str
    """The memory space it lies in."""
    meaning: str
    """Its role, in words."""
    instruction: str
    """The text of the instruction that defines it."""
    frames: tuple[Frame, ...]
    """The calls that led to it, innermost first."""
    growths: tuple[Growth, ...]
    """The dimensions that padding makes larger."""
    also_known_as: tuple[str, ...]
    """The other instructions it is a part of: tuples, loops, what hands it on unchanged."""
    readers: tuple[str, ...]
    """Its readers, in the order of the schedule."""
    first: str
    """Why it is alive from its first step on."""
    last: str
    """Why until its last."""
    loops: tuple[str, ...]
    """The loops it lives inside of, or is carried by."""
    neighbours: tuple[Neighbour, ...]
    in_place: tuple[InPlace, ...]


def explain(memory: MemoryView, buffer: Buffer) -> Explanation:
    """The explanation of one buffer."""
    placed = memory.joined.placed_by_id[buffer.id]
    used = placed.used
    positions = used.positions if used else ()
    times = memory.joined.time_of
    readers = {use.instruction for use in (used.uses if used else None) or ()}
    return Explanation(
        buffer=buffer,
        allocation_kind=kind_of(placed.allocation),
        allocation_size=placed.allocation.size,
        space=memory.space_name(buffer.color),
        meaning=roles.MEANING[buffer.role],
        instruction=used.instruction if used else "",
        frames=memory.frames(buffer),
        growths=growths(buffer.shape, buffer.size) if buffer.padding else (),
        also_known_as=tuple(
            indexed(position.instruction, position.index or ())
            for position in positions
            if position.instruction != placed.value.name
        ),
        readers=tuple(sorted(readers, key=lambda name: (times.get(name, -1), name))),
        first=_why_from(memory, placed, buffer),
        last=_why_until(memory, placed, buffer),
        loops=tuple(_loops(memory, placed, buffer)),
        neighbours=tuple(_neighbours(memory, placed, buffer)),
        in_place=tuple(iter_in_place(memory, buffer)),
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
    """The reason a buffer is needed at its last step."""
    if buffer.end is None:
        return ""
    joined, used = memory.joined, placed.used
    if buffer.end == memory.steps:
        if placed.allocation.maybe_live_out:
            return "the caller gets it" + (f" as {buffer.result}" if buffer.result else "")
        if placed.allocation.parameter is not None:
            return "it is an argument that was not donated: nothing may be written over it"
    uses = (used.uses if used else None) or ()
    last = [use.instruction for use in uses if joined.time_of.get(use.instruction) == buffer.end]
    if last:
        return f"{last[0]} reads it"
    following = [
        member.value.name
        for member in memory.family(placed)
        if member is not placed and member.life and member.life.start == buffer.end
    ]
    if following:
        return f"from then on its bytes are {following[0]}, which must lie where it lies"
    positions = used.positions if used else ()
    parts = [
        indexed(position.instruction, position.index or ())
        for position in positions
        if joined.time_of.get(position.instruction) == buffer.end
    ]
    if parts:
        return f"it is {parts[0]}"
    running = joined.sequence[buffer.end] if buffer.end < memory.steps else "the program"
    return f"the computation that {running} belongs to needs it until then"


def _loops(memory: MemoryView, placed: PlacedValue, buffer: Buffer) -> Iterator[str]:
    joined = memory.joined
    positions = {
        position.instruction for position in (placed.used.positions if placed.used else ())
    }
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
    """The other holders of its bytes, in the order they live."""
    family = {member.id for member in memory.family(placed)}
    others = [
        other
        for other in memory.buffers_in(buffer.allocation)
        if other.id != buffer.id and buffer.shares_bytes_with(other)
    ]
    for neighbour in sorted(others, key=lambda other: (other.start or 0, other.id)):
        when = _when(buffer, neighbour)
        why = ""
        if when == "together":
            why = (
                "another version of the same value"
                if neighbour.id in family
                else "written in place"
            )
        yield Neighbour(
            name=neighbour.name,
            offset=neighbour.offset,
            size=neighbour.size,
            start=neighbour.start,
            end=neighbour.end,
            when=when,
            why=why,
        )


def _when(buffer: Buffer, other: Buffer) -> str:
    if None in {buffer.start, buffer.end, other.start, other.end}:
        return "together"
    assert buffer.start is not None
    assert buffer.end is not None
    assert other.start is not None
    assert other.end is not None
    if other.end < buffer.start:
        return "before"
    return "after" if other.start > buffer.end else "together"
