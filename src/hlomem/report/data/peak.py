"""The buffers alive at a step, by default the peak, in groups; XLA's own peak is explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from hlomem.base.errors import HlomemError, InputError
from hlomem.base.source import visible
from hlomem.dump.records import Record
from hlomem.hlo.padding import unpadded_size
from hlomem.report.data.branches import (
    ARGUMENTS,
    DEFAULT_DEPTH,
    NO_ARGUMENT,
    UNNAMED,
    Branch,
    build_branches,
)
from hlomem.report.data.lines import bare_op_name
from hlomem.report.data.lookup import find_step
from hlomem.report.data.occupancy import share_out
from hlomem.report.data.scoped import ScopedRow, build_scoped, find_scoped
from hlomem.report.data.timeline import Summit, Timeline, outline
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.report.data.memory import Buffer, MemoryView, OwnedBytes, Space

Key: TypeAlias = Literal["buffer", "line", "op", "scope", "role", "shape", "arg"]
KEYS: tuple[Key, ...] = get_args(Key)
_STRETCHES = 44
NOWHERE = "(no source line)"


class SnapshotRow(Record, frozen=True, kw_only=True):
    """The bytes of one group of buffers; the fields after `largest` describe the largest one."""

    key: str
    size: int
    count: int
    largest: str
    shape: str
    role: str
    source: str | None
    op_name: str | None
    place: str
    moved: str | None
    told_by: str | None


class Reason(Record, frozen=True, kw_only=True):
    """One step from XLA's number to ours: a signed number of bytes."""

    why: str
    size: int


class PrintedPeak(Record, frozen=True, kw_only=True):
    """The peak that XLA prints, and why it differs from ours."""

    step: int
    size: int
    reasons: tuple[Reason, ...]
    """`size` plus these is the peak of the space."""


class Snapshot(Record, frozen=True, kw_only=True):
    """Everything alive at a step of a memory space."""

    name: str
    space: str
    step: int
    steps: int
    instruction: str | None
    op_name: str | None
    source: str | None
    size: int
    """Bytes in use, each counted once."""
    peak_size: int
    space_size: int
    """The reserved bytes, which must fit."""
    by: Key
    method: Literal["replayed"]
    caveats: tuple[str, ...]
    rows: tuple[SnapshotRow, ...]
    """Largest first; with the rest they add up to `size`."""
    rest_size: int
    rest_count: int
    """Buffers in groups that are not shown."""
    rest_groups: int
    branches: tuple[Branch, ...]
    """The same as a tree with subtotals, if grouped by argument or scope."""
    outline: tuple[int, ...]
    """The maximum in each of equal stretches of the schedule."""
    near_peaks: tuple[Summit, ...]
    printed: PrintedPeak | None
    scoped: ScopedRow | None = None
    """VMEM the instruction uses while it runs; None if none, or it is not known."""


def build_snapshot(
    memory: MemoryView,
    space: Space,
    at: str | None = None,
    by: Key = "buffer",
    top: int | None = None,
    depth: int = DEFAULT_DEPTH,
) -> Snapshot:
    timeline = require_timeline(memory, space)
    step = timeline.peak.step if at is None else find_step(memory, at)
    alive, moment = memory.alive(space.color, step), memory.moment(step)
    rows = group(alive, by)
    rest = rows[top:] if top is not None else []
    return Snapshot(
        name=memory.dump.title,
        space=space.name,
        step=step,
        steps=memory.steps,
        instruction=moment.instruction,
        op_name=moment.op_name,
        source=moment.source,
        size=timeline.sizes[step],
        peak_size=timeline.peak.size,
        space_size=space.size,
        by=by,
        method="replayed",
        caveats=(*caveats(memory, space), *_missing_lines(memory, rows, by)),
        rows=tuple(rows[: len(rows) - len(rest)]),
        rest_size=sum(row.size for row in rest),
        rest_count=sum(row.count for row in rest),
        rest_groups=len(rest),
        branches=build_branches(alive, by, depth) if by in ("arg", "scope") else (),
        outline=outline(timeline.sizes, _STRETCHES),
        near_peaks=timeline.near_peaks if at is None else (),
        printed=explain_printed(memory, space, timeline) if at is None else None,
        scoped=find_scoped(build_scoped(memory), moment.instruction),
    )


def require_timeline(memory: MemoryView, space: Space) -> Timeline:
    """A space's timeline, or an error that names the missing file."""
    timeline = memory.timeline(space.color)
    if timeline is None:
        where = visible(memory.dump.name)
        raise InputError(f"{where}: no live ranges; they are in the file *-live-range.txt")
    return timeline


def group(owned: Sequence[OwnedBytes], by: Key) -> list[SnapshotRow]:
    groups: dict[str, list[OwnedBytes]] = {}
    for part in owned:
        groups.setdefault(key_of(part.buffer, by), []).append(part)
    rows = [_row(key, members) for key, members in groups.items()]
    return sorted(rows, key=lambda row: (-row.size, row.key))


def key_of(buffer: Buffer, by: Key) -> str:
    if by == "line":
        return buffer.source or (ARGUMENTS if buffer.parameter else NOWHERE)
    if by == "op":
        return bare_op_name(buffer.op_name or UNNAMED)
    if by == "scope":
        scope = bare_op_name(buffer.op_name or "").rpartition("/")[0]
        return scope or (ARGUMENTS if buffer.parameter else UNNAMED)
    if by == "role":
        return buffer.role
    if by == "shape":
        return buffer.shape
    if by == "arg":
        return buffer.parameter or NO_ARGUMENT
    return f"{buffer.name} <{buffer.id}>"


def _row(key: str, members: Sequence[OwnedBytes]) -> SnapshotRow:
    largest = max(members, key=lambda part: (part.size, -part.buffer.id)).buffer
    return SnapshotRow(
        key=key,
        size=sum(part.size for part in members),
        count=len(members),
        largest=largest.name,
        shape=largest.shape,
        role=largest.role,
        source=largest.source,
        op_name=largest.op_name,
        place=largest.place,
        moved=largest.moved,
        told_by=largest.told_by,
    )


def caveats(memory: MemoryView, space: Space) -> tuple[str, ...]:
    """Omissions of a peak replayed from live ranges."""
    here = [placed for placed in memory.joined.placed if placed.allocation.color == space.color]
    timeless = [placed for placed in here if memory.life_of(placed) is None]
    lost = [placed for placed in timeless if not memory.is_thread_local(placed)]
    found = []
    if lost:
        size = sum(placed.value.size for placed in lost)
        found.append(f"{len(lost)} values ({size} bytes) have no live range and are not counted")
    local = sum(placed.value.size for placed in here if memory.is_thread_local(placed))
    if local:
        found.append(f"{local} thread-local bytes are not counted")
    return tuple(found)


def _missing_lines(memory: MemoryView, rows: Sequence[SnapshotRow], by: Key) -> tuple[str, ...]:
    """A hint that the module's text has the missing source lines."""
    lost = any(row.key == NOWHERE for row in rows)
    if by != "line" or not lost or memory.module is not None:
        return ()
    why = "no lines without the module's text: put XLA's *after_optimizations.txt next to the dump"
    return (f"{why}, or name it with --hlo",)


def explain_printed(memory: MemoryView, space: Space, timeline: Timeline) -> PrintedPeak | None:
    """The peak printed by XLA, if any, and why it differs from this space's."""
    live = memory.dump.live_ranges
    if live is None or live.peak is None or live.peak.moment > memory.steps:
        return None
    step = live.peak.moment
    size = sum(buffer.size for buffer in live.peak.buffers)
    listed_whole = any(buffer.index is None for buffer in live.peak.buffers)
    alive = memory.alive_at(step)
    here = [value for value in alive if value.color == space.color]
    listed = {
        value.id: _unpadded(
            _instruction_shape(memory, value) if listed_whole else value.shape, value
        )
        for value in alive
    }
    listed_here = sum(listed[value.id] for value in here)
    union = _union(here)
    other_size = sum(listed.values()) - listed_here
    bare_size = sum(_unpadded(value.shape, value) for value in here)
    full_size = sum(value.size for value in here)
    later = (
        f"as more is alive at instruction {timeline.peak.step}: XLA looks for the peak without "
        "padding, without memory reserved for results, and with parts of tuples as pointers"
    )
    reasons = [
        ("in other memory spaces", -other_size),
        ("of values without a location", sum(listed.values()) - size),
        ("parts of tuples, which that list counts as pointers", bare_size - listed_here),
        ("padding, which that list leaves out", full_size - bare_size),
        ("shared bytes, which it counts for each value", union - full_size),
        ("reserved for results and arguments but not in use", timeline.sizes[step] - union),
        (later, timeline.peak.size - timeline.sizes[step]),
    ]
    shown = tuple(Reason(why=why, size=amount) for why, amount in reasons if amount)
    return PrintedPeak(step=step, size=size, reasons=shown)


def _union(buffers: Iterable[Buffer]) -> int:
    by_allocation: dict[int, list[Buffer]] = {}
    for buffer in buffers:
        by_allocation.setdefault(buffer.allocation, []).append(buffer)
    owned = [share_out(here)[0] for here in by_allocation.values()]
    return sum(part.size for here in owned for part in here)


def _instruction_shape(memory: MemoryView, buffer: Buffer) -> str:
    """The shape that XLA up to jaxlib 0.5.3 lists at the peak: the whole instruction's."""
    text = memory.joined.printed.get(memory.joined.placed_by_id[buffer.id].value.name)
    return text.shape_text if text else buffer.shape


def _unpadded(shape_text: str, buffer: Buffer) -> int:
    """The bytes XLA's list at the peak counts for a shape (`HloLiveRange::ToString`)."""
    shape = parse_shape_or_none(shape_text)
    try:
        return buffer.size if shape is None else unpadded_size(shape)
    except HlomemError:
        return buffer.size
