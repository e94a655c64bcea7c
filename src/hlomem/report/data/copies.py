"""Copies that cost memory, and why each is made.

In: a `MemoryView` and a space. Out: one row per copy that has bytes of its own, those alive at the
peak first, and the same by line. XLA copies to change a layout (`LayoutAssignment`), to move a
value to another memory space, and to keep a value that something else would overwrite
(`CopyInsertion`). A value that was moved out of fast memory has no other place, and one that XLA's
rematerialization compressed would be larger without: these are moves, not copies one could save.
A copy that a loop carries on is alive as long as what the loop makes of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from hlomem.dump.records import Record
from hlomem.report.data import places, roles
from hlomem.report.data.hints import Hint
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.base.quantities import ValueId
    from hlomem.report.data.buffers import Stay
    from hlomem.report.data.memory import Buffer, MemoryView, Space
    from hlomem.view.joined import PlacedValue

Cause: TypeAlias = Literal["layout", "memory space", "kept value", "unknown"]

_LAYOUT = re.compile(r"\{([0-9,]*)([^}]*)\}$")
_SPACE = re.compile(r"S\((\d+)\)")
_CARRY_IT = "xs and ys of a scan are two buffers, what it carries is one"


class Copy(Record, frozen=True, kw_only=True):
    """A buffer that holds what another holds already."""

    name: str
    size: int
    shape: str
    of: str | None
    """The value it copies."""
    of_shape: str | None
    cause: Cause
    why: str
    start: int | None
    end: int | None
    is_at_peak: bool
    source: str | None
    op_name: str | None


class CopyGroup(Record, frozen=True, kw_only=True):
    """Copies of one line, made for one reason."""

    source: str | None
    cause: Cause
    why: str
    """Of the first."""
    shape: str
    size: int
    """Of all that are alive at the peak; of all where none is."""
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
    """Bytes at the peak that were moved here from another memory, or compressed."""
    rows: tuple[Copy, ...]
    groups: tuple[CopyGroup, ...]
    """The rows by line, the largest first."""


def build_copies(memory: MemoryView, space: Space) -> Copies:
    """The copies in a space, those at the peak first, then by size."""
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
    """The bytes of a copy at the peak, or of what a loop has made of it there."""
    if copy.id in size_by_id or not memory.is_carried(copy):
        return size_by_id.get(copy.id, 0)
    family = memory.family(memory.joined.placed_by_id[copy.id])
    return max((size_by_id.get(member.id, 0) for member in family), default=0)


def _is_move(memory: MemoryView, buffer: Buffer) -> bool:
    """Whether a copy is the only place of its value: moved here, or compressed."""
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
    """The bytes fewer copies would save at the peak."""
    if not copies.size_at_peak:
        return None
    worst = next((row for row in copies.rows if row.cause != "memory space"), copies.rows[0])
    buffers = plural(copies.count_at_peak, "buffer")
    what = f"copies at the peak, in {buffers}: first {worst.name} ({worst.cause})"
    return Hint(size=copies.size_at_peak, what=what, command="copies")


def _copying(memory: MemoryView) -> set[str]:
    """The instructions that copy."""
    return {
        name
        for opcode, names in memory.joined.names_of_opcode.items()
        if opcode in roles.MAY_COPY
        for name in names
        if roles.is_copy(name, opcode)
    }


def _is_copied(memory: MemoryView, placed: PlacedValue) -> bool:
    """Whether a value of an instruction that copies is the result, not its state."""
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
    """The largest value a copy reads."""
    read = memory.operands(buffer)
    return max(read, key=lambda operand: (operand.size, -operand.id)) if read else None


def _cause(memory: MemoryView, buffer: Buffer, copied: Buffer | None) -> tuple[Cause, str]:
    if copied is None:
        return "unknown", "the dump does not say what it copies"
    ours, theirs = _LAYOUT.search(buffer.shape), _LAYOUT.search(copied.shape)
    here, there = _space_of(buffer.shape), _space_of(copied.shape)
    if here != there or buffer.color != copied.color:
        names = memory.space_name(copied.color), memory.space_name(buffer.color)
        return "memory space", f"moved from {names[0]} to {names[1]} memory"
    is_same_array = buffer.shape.partition("{")[0] == copied.shape.partition("{")[0]
    if "transpose" in buffer.name or not is_same_array:
        return "layout", _why_transposed(memory, buffer, copied)
    if ours and theirs and ours[1] != theirs[1]:
        return "layout", f"{{{theirs[1]}}} becomes {{{ours[1]}}}{_for_loop(memory, buffer)}"
    if ours and theirs and ours[2] != theirs[2]:
        return "layout", f"tiles {theirs[2].strip(':')} become {ours[2].strip(':')}"
    return "kept value", _why_kept(memory, buffer, copied)


def _why_transposed(memory: MemoryView, buffer: Buffer, copied: Buffer) -> str:
    """The reason dimensions are put in another order: the product that is computed with them."""
    names = [buffer.op_name, *_readers(memory, buffer)]
    scopes = [scope for name in names for scope in (name or "").split("/")]
    product = next((scope for scope in scopes if "->" in scope), "")
    if product:
        return f"transposed for the einsum {product}"
    last = (buffer.op_name or "").rpartition("/")[2]
    return f"rearranges {copied.shape.partition('{')[0]}" + (f" for {last}" if last else "")


def _readers(memory: MemoryView, buffer: Buffer) -> Iterator[str]:
    """The operations that read a buffer."""
    used = memory.joined.placed_by_id[buffer.id].used
    for use in (used.uses if used else None) or ():
        text = memory.joined.printed.get(use.instruction)
        if text is not None:
            yield text.metadata.op_name


def _for_loop(memory: MemoryView, buffer: Buffer) -> str:
    """The reason for a copy that a loop carries on, and the way to do without it."""
    if not memory.is_carried(buffer):
        return ""
    return ", as the loop that carries it has it"


def _why_kept(memory: MemoryView, buffer: Buffer, copied: Buffer) -> str:
    if copied.place == places.ARGUMENTS:
        why = f"{copied.parameter} is not donated, so it may not be written to"
        return f"{why}; the loop carries its copy" if memory.is_carried(buffer) else why
    if buffer.start is None or buffer.end is None or copied.end is None:
        return "made by copy insertion"
    if copied.end > buffer.start:
        return f"{copied.name} is needed until instruction {copied.end}, and its copy is written to"
    if copied.place == places.DONATED or memory.is_carried(copied):
        over = _overwriting(memory, buffer, copied)
        if over is not None:
            return f"{over.name} is written over {copied.name} at instruction {over.start}"
    if memory.is_carried(buffer):
        why = f"{copied.name} must come to lie where the loop has it"
        return f"{why}; {_CARRY_IT}" if copied.opcode == "while" and _is_stack(buffer) else why
    if buffer.end == memory.steps:
        return f"{copied.name} must come to lie where the result is"
    return f"made by copy insertion; {copied.name} is not needed after it"


def _is_stack(buffer: Buffer) -> bool:
    """Whether a loop slices it or stacks it, layer by layer."""
    return (
        buffer.role in {roles.STACKED, roles.CARRIED, roles.CACHE} and buffer.shape.count(",") > 1
    )


def _overwriting(memory: MemoryView, buffer: Buffer, copied: Buffer) -> Stay | Buffer | None:
    """The value that takes the bytes of the original while the copy is alive."""
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
