"""Copies that cost memory, and why each is made.

In: a `MemoryView` and a space. Out: one row per copy that has bytes of its own, those alive at the
peak first. XLA copies to change a layout (`LayoutAssignment`), to move a value to another memory
space, and to keep a value that something else would overwrite (`CopyInsertion`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from hlomem.dump.records import Record
from hlomem.report.data import roles
from hlomem.report.data.hints import Hint
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from hlomem.report.data.memory import Buffer, MemoryView, Space

Cause: TypeAlias = Literal["layout", "memory space", "kept value", "unknown"]

_LAYOUT = re.compile(r"\{([0-9,]*)([^}]*)\}$")
_SPACE = re.compile(r"S\((\d+)\)")


class Copy(Record, frozen=True, kw_only=True):
    """A buffer that holds what another holds already."""

    name: str
    size: int
    shape: str
    of: str | None
    """What it copies."""
    of_shape: str | None
    cause: Cause
    why: str
    start: int | None
    end: int | None
    is_at_peak: bool
    source: str | None
    op_name: str | None


class Copies(Record, frozen=True, kw_only=True):
    """All copies of a memory space."""

    name: str
    space: str
    peak_size: int | None
    size_at_peak: int
    count_at_peak: int
    rows: tuple[Copy, ...]


def build_copies(memory: MemoryView, space: Space) -> Copies:
    """The copies in a space, those at the peak first, then by size."""
    timeline = memory.timeline(space.color)
    alive = memory.alive(space.color, timeline.peak.step) if timeline else []
    size_by_id = {each.buffer.id: each.size for each in alive}
    copies = [
        each
        for each in memory.buffers
        if each.opcode in roles.MAY_COPY and each.color == space.color and _is_copy(each)
    ]
    rows = [_row(memory, each, each.id in size_by_id) for each in copies]
    rows.sort(key=lambda row: (not row.is_at_peak, -row.size, row.name))
    return Copies(
        name=memory.dump.title,
        space=space.name,
        peak_size=timeline.peak.size if timeline else None,
        size_at_peak=sum(size_by_id.get(each.id, 0) for each in copies),
        count_at_peak=sum(each.id in size_by_id for each in copies),
        rows=tuple(rows),
    )


def hint_of(copies: Copies) -> Hint | None:
    """What fewer copies would save at the peak."""
    if not copies.size_at_peak:
        return None
    worst = copies.rows[0]
    buffers = plural(copies.count_at_peak, "buffer")
    what = f"copies at the peak, in {buffers}: first {worst.name} ({worst.cause})"
    return Hint(size=copies.size_at_peak, what=what, command="copies")


def _is_copy(buffer: Buffer) -> bool:
    """Whether a buffer is a copy's result, not the state of one."""
    if buffer.opcode is None or buffer.role == roles.THREAD_LOCAL:
        return False
    is_data = buffer.role != roles.TUPLES and not buffer.shape.startswith("(")
    return is_data and roles.is_copy(buffer.name.partition("{")[0], buffer.opcode)


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
    return max(read, key=lambda each: (each.size, -each.id)) if read else None


def _cause(memory: MemoryView, buffer: Buffer, copied: Buffer | None) -> tuple[Cause, str]:
    if copied is None:
        return "unknown", "the dump does not say what it copies"
    ours, theirs = _LAYOUT.search(buffer.shape), _LAYOUT.search(copied.shape)
    here, there = _space_of(buffer.shape), _space_of(copied.shape)
    if here != there or buffer.color != copied.color:
        names = memory.space_name(copied.color), memory.space_name(buffer.color)
        return "memory space", f"moved from {names[0]} to {names[1]} memory"
    if ours and theirs and ours[1] != theirs[1]:
        return "layout", f"{{{theirs[1]}}} becomes {{{ours[1]}}}"
    is_transpose = "transpose" in buffer.name
    if is_transpose or buffer.shape.partition("{")[0] != copied.shape.partition("{")[0]:
        return "layout", f"rearranges {copied.shape}"
    if ours and theirs and ours[2] != theirs[2]:
        return "layout", f"tiles {theirs[2].strip(':')} become {ours[2].strip(':')}"
    return "kept value", _why_kept(memory, buffer, copied)


def _why_kept(memory: MemoryView, buffer: Buffer, copied: Buffer) -> str:
    if copied.role == roles.PARAMETERS:
        return f"{copied.parameter} is not donated, so it may not be written to"
    if buffer.start is None or buffer.end is None or copied.end is None:
        return "made by copy insertion"
    if copied.end > buffer.start:
        return f"{copied.name} is needed until step {copied.end}, and its copy is written to"
    if copied.role == roles.DONATED or memory.is_carried(copied):
        over = _overwriting(memory, buffer, copied)
        if over is not None:
            return f"{over.name} is written over {copied.name} at step {over.start}"
    if memory.is_carried(buffer):
        return f"{copied.name} must come to lie where the loop has it"
    if buffer.end == memory.steps:
        return f"{copied.name} must come to lie where the result is"
    return f"made by copy insertion; {copied.name} is not needed after it"


def _overwriting(memory: MemoryView, buffer: Buffer, copied: Buffer) -> Buffer | None:
    """Who takes the bytes of what was copied while the copy is alive."""
    assert buffer.start is not None
    assert buffer.end is not None
    end = copied.offset + copied.size
    found = [
        each
        for each in memory.buffers_in(copied.allocation)
        if each.start is not None
        and buffer.start < each.start <= buffer.end
        and each.offset < end
        and copied.offset < each.offset + each.size
    ]
    return min(found, key=lambda each: (each.start or 0, each.id), default=None)


def _space_of(shape: str) -> str:
    found = _SPACE.search(shape)
    return found[1] if found else "0"
