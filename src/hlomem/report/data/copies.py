"""Copies that cost memory, and why each is made.

A value moved out of fast memory, or compressed by XLA, exists only once and is listed as moved. A
copy carried by a loop is alive as long as the loop's values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from hlomem.dump.records import Record
from hlomem.report.data import allocation_kinds, roles
from hlomem.report.data.hints import Hint
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.base.quantities import ValueId
    from hlomem.report.data.buffers import Stay
    from hlomem.report.data.memory import Buffer, MemoryView, Space
    from hlomem.view.joined import PlacedValue

CopyCause: TypeAlias = Literal["layout", "memory space", "kept value", "unknown"]

_LAYOUT = re.compile(r"\{([0-9,]*)([^}]*)\}$")
_SPACE = re.compile(r"S\((\d+)\)")
_CARRY_IT = "xs and ys of a scan are two buffers, what it carries is one"


class Copy(Record, frozen=True, kw_only=True):
    name: str
    size: int
    shape: str
    of: str | None
    of_shape: str | None
    cause: CopyCause
    why: str
    start: int | None
    end: int | None
    is_at_peak: bool
    source: str | None
    op_name: str | None


class CopyGroup(Record, frozen=True, kw_only=True):
    """Copies of one line, made for one reason."""

    source: str | None
    cause: CopyCause
    why: str
    shape: str
    size: int
    """Of those alive at the peak, or of all if none is."""
    count: int
    count_at_peak: int
    example: Copy


class Copies(Record, frozen=True, kw_only=True):
    """All copies of a memory space."""

    name: str
    space: str
    peak_size: int | None
    size_at_peak: int
    count_at_peak: int
    moved_size: int
    """Bytes at the peak moved here from another memory space, or compressed."""
    rows: tuple[Copy, ...]
    groups: tuple[CopyGroup, ...]
    """The rows by line, largest first."""


def build_copies(memory: MemoryView, space: Space) -> Copies:
    """The copies in a space, those alive at the peak first, then by size."""
    timeline = memory.timeline(space.color)
    alive = memory.alive(space.color, timeline.peak.step) if timeline else []
    owned = {part.buffer.id: part.size for part in alive}
    size_by_id = {
        part.buffer.id: owned[part.buffer.id]
        for part in alive
        if timeline and part.buffer.is_live_at(timeline.peak.step)
    }
    copying = _copying(memory)
    found = [
        memory.buffer_of(placed)
        for placed in memory.joined.placed
        if placed.value.name in copying
        and placed.allocation.color == space.color
        and _is_copied(memory, placed)
    ]
    is_fast = memory.machine.preset_color == space.color
    copies = [copy for copy in found if is_fast or not _is_move(memory, copy)]
    kept = {copy.id for copy in copies}
    at_peak = {copy.id: _size_at_peak(memory, copy, size_by_id) for copy in found}
    rows = [_row(memory, copy, at_peak[copy.id] > 0) for copy in copies]
    rows.sort(key=lambda row: (not row.is_at_peak, -row.size, row.name))
    return Copies(
        name=memory.dump.title,
        space=space.name,
        peak_size=timeline.peak.size if timeline else None,
        size_at_peak=sum(at_peak[number] for number in kept),
        count_at_peak=sum(at_peak[number] > 0 for number in kept),
        moved_size=sum(size for number, size in at_peak.items() if number not in kept),
        rows=tuple(rows),
        groups=_grouped(rows),
    )


def _size_at_peak(memory: MemoryView, copy: Buffer, size_by_id: dict[ValueId, int]) -> int:
    """The bytes of a copy, or of the loop value it became, at the peak."""
    if copy.id in size_by_id or not memory.is_carried(copy):
        return size_by_id.get(copy.id, 0)
    family = memory.family(memory.joined.placed_by_id[copy.id])
    return max((size_by_id.get(member.id, 0) for member in family), default=0)


def _is_move(memory: MemoryView, buffer: Buffer) -> bool:
    """Whether a copy is the only instance of its value: moved here, or compressed."""
    if ".remat" in buffer.name:
        return True
    copied = _copied(memory, buffer)
    return copied is not None and copied.color != buffer.color


def _grouped(rows: list[Copy]) -> tuple[CopyGroup, ...]:
    members: dict[tuple[str, ...], list[Copy]] = {}
    for row in rows:
        line = row.source or row.name
        members.setdefault((line, row.cause, row.shape.partition("{")[0]), []).append(row)
    groups = [_group(same) for same in members.values()]
    return tuple(
        sorted(groups, key=lambda group: (not group.count_at_peak, -group.size, group.example.name))
    )


def _group(rows: list[Copy]) -> CopyGroup:
    at_peak = [row for row in rows if row.is_at_peak]
    first = (at_peak or rows)[0]
    return CopyGroup(
        source=first.source,
        cause=first.cause,
        why=first.why,
        shape=first.shape,
        size=sum(row.size for row in at_peak or rows),
        count=len(rows),
        count_at_peak=len(at_peak),
        example=first,
    )


def hint_of(copies: Copies) -> Hint | None:
    if not copies.size_at_peak:
        return None
    worst = next((row for row in copies.rows if row.cause != "memory space"), copies.rows[0])
    buffers = plural(copies.count_at_peak, "buffer")
    what = f"copies at the peak, in {buffers}: first {worst.name} ({worst.cause})"
    return Hint(size=copies.size_at_peak, what=what, command="copies")


def _copying(memory: MemoryView) -> set[str]:
    return {
        name
        for opcode, names in memory.joined.names_of_opcode.items()
        if opcode in roles.MAY_COPY
        for name in names
        if roles.is_copy(name, opcode)
    }


def _is_copied(memory: MemoryView, placed: PlacedValue) -> bool:
    """Whether a value of a copying instruction is its result, not its async state."""
    if placed.value.shape.startswith("("):
        return False
    return memory.buffer_of(placed).role not in {roles.THREAD_LOCAL, roles.TUPLES}


def _row(memory: MemoryView, buffer: Buffer, is_at_peak: bool) -> Copy:
    copied = _copied(memory, buffer)
    cause, why = _cause(memory, buffer, copied)
    return Copy(
        name=buffer.name,
        size=buffer.size,
        shape=buffer.shape,
        of=copied.name if copied else None,
        of_shape=copied.shape if copied else None,
        cause=cause,
        why=why,
        start=buffer.start,
        end=buffer.end,
        is_at_peak=is_at_peak,
        source=buffer.source,
        op_name=buffer.op_name,
    )


def _copied(memory: MemoryView, buffer: Buffer) -> Buffer | None:
    read = memory.operands(buffer)
    return max(read, key=lambda operand: (operand.size, -operand.id)) if read else None


def _cause(memory: MemoryView, buffer: Buffer, copied: Buffer | None) -> tuple[CopyCause, str]:
    if copied is None:
        return "unknown", "the dump does not say what it copies"
    ours, theirs = _LAYOUT.search(buffer.shape), _LAYOUT.search(copied.shape)
    here, there = _space_of(buffer.shape), _space_of(copied.shape)
    if here != there or buffer.color != copied.color:
        names = memory.space_name(copied.color), memory.space_name(buffer.color)
        return "memory space", f"moved from {names[0]} to {names[1]} memory"
    is_same_array = buffer.elements == copied.elements
    if "transpose" in buffer.name or not is_same_array:
        return "layout", _why_transposed(memory, buffer, copied)
    if ours and theirs and ours[1] != theirs[1]:
        loop = ", the layout of the loop that carries it" if memory.is_carried(buffer) else ""
        return "layout", f"{{{theirs[1]}}} becomes {{{ours[1]}}}{loop}"
    if ours and theirs and ours[2] != theirs[2]:
        return "layout", f"tiles {theirs[2].strip(':')} become {ours[2].strip(':')}"
    return "kept value", _why_kept(memory, buffer, copied)


def _why_transposed(memory: MemoryView, buffer: Buffer, copied: Buffer) -> str:
    names = [buffer.op_name, *_readers(memory, buffer)]
    scopes = [scope for name in names for scope in (name or "").split("/")]
    product = next((scope for scope in scopes if "->" in scope), "")
    if product:
        return f"transposed for the einsum {product}"
    last = (buffer.op_name or "").rpartition("/")[2]
    return f"rearranges {copied.elements}" + (f" for {last}" if last else "")


def _readers(memory: MemoryView, buffer: Buffer) -> Iterator[str]:
    for use in memory.joined.placed_by_id[buffer.id].uses:
        text = memory.joined.printed.get(use.instruction)
        if text is not None:
            yield text.metadata.op_name


def _why_kept(memory: MemoryView, buffer: Buffer, copied: Buffer) -> str:
    if copied.place == allocation_kinds.ARGUMENTS:
        why = f"{copied.parameter} is not donated, so it may not be written to"
        return f"{why}; the loop carries its copy" if memory.is_carried(buffer) else why
    if buffer.start is None or buffer.end is None or copied.end is None:
        return "made by copy insertion"
    if copied.end > buffer.start:
        return f"{copied.name} is needed until instruction {copied.end}, and its copy is written to"
    if copied.place == allocation_kinds.DONATED or memory.is_carried(copied):
        over = _overwriting(memory, buffer, copied)
        if over is not None:
            return f"{over.name} is written over {copied.name} at instruction {over.start}"
    if memory.is_carried(buffer):
        why = f"{copied.name} must be at the location of the loop's value"
        return f"{why}; {_CARRY_IT}" if copied.opcode == "while" and _is_stack(buffer) else why
    if buffer.end == memory.steps:
        return f"{copied.name} must be at the location of the result"
    return f"made by copy insertion; {copied.name} is not needed after it"


def _is_stack(buffer: Buffer) -> bool:
    return (
        buffer.role in {roles.STACKED, roles.CARRIED, roles.CACHE} and buffer.shape.count(",") > 1
    )


def _overwriting(memory: MemoryView, buffer: Buffer, copied: Buffer) -> Stay | Buffer | None:
    assert buffer.start is not None
    assert buffer.end is not None
    end = copied.offset + copied.size
    found = [
        other
        for other in memory.stays_in(copied.allocation)
        if other.start is not None
        and buffer.start < other.start <= buffer.end
        and other.offset < end
        and copied.offset < other.offset + other.size
    ]
    return min(found, key=lambda other: (other.start or 0, other.id), default=None)


def _space_of(shape: str) -> str:
    found = _SPACE.search(shape)
    return found[1] if found else "0"
