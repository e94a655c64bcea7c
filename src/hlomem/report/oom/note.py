"""A few lines below a traceback: program, peak by role, best advice, line to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.dump.records import Record
from hlomem.report.data.branches import ARGUMENTS
from hlomem.report.data.names import short_program
from hlomem.report.data.occupancy import build_role_shares
from hlomem.report.data.peak import NOWHERE, SnapshotRow, build_snapshot
from hlomem.report.screens.text import percent, space_label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.memory import MemoryView, Space
    from hlomem.report.oom.log import Failure

TOP_ROLES = 4
_WORTH_SAYING = 0.01
"""Smallest fraction of memory for which a role has a line of its own."""
HEAD = "hlomem:"
"""The beginning of a note; no error gets two."""


class Remark(Record, frozen=True, kw_only=True):
    """Parts of a note in addition to the memory itself."""

    reason: str = ""
    """Why this program."""
    advice: str = ""
    page: str = ""


def draw_note(memory: MemoryView, space: Space, failure: Failure, remark: Remark) -> list[str]:
    lines = [f"{HEAD} {_needs(memory, space, failure)}"]
    own = f"the plan is hlomem's own, of {format_bytes(space.size)}" if memory.is_planned else ""
    reason = [remark.reason, own]
    if any(reason):
        lines.append(f"  {'; '.join(filter(None, reason))}")
    lines += _roles(memory, space)
    if remark.advice:
        lines.append(f"  best advice: {remark.advice}")
    if remark.page:
        lines.append(f"  {remark.page}")
    lines.append(f"  look at {_line(memory, space)}")
    return [visible(line) for line in lines]


def _needs(memory: MemoryView, space: Space, failure: Failure) -> str:
    name = short_program(memory.dump.title).removeprefix("jit_")
    is_told = failure.moment == "compile" and failure.needed is not None and memory.is_planned
    size = failure.needed if is_told and failure.needed is not None else space.size
    words = f"{name} needs {format_bytes(size)} of {space_label(space.name)}"
    if memory.device_count > 1:
        words += f" on each of {memory.device_count} devices"
    if failure.moment == "compile" and failure.available is not None:
        words += f", {format_bytes(failure.available)} available"
        missing = size - failure.available
        words += f": over by {format_bytes(missing)}" if missing > 0 else ""
    elif failure.needed is not None:
        words += f"; {format_bytes(failure.needed)} at once could not be allocated"
    return words


def _roles(memory: MemoryView, space: Space) -> Iterator[str]:
    shares = build_role_shares(memory, space.color)
    shown = [share for share in shares[:TOP_ROLES] if share.size >= _WORTH_SAYING * space.size]
    for share in shown:
        part = percent(share.size, space.size)
        yield f"  {format_bytes(share.size):>11}  {part:>6}  {share.role}"
    if rest := space.size - sum(share.size for share in shown):
        yield f"  {format_bytes(rest):>11}  {percent(rest, space.size):>6}  the rest"


def _line(memory: MemoryView, space: Space) -> str:
    """The line with most of the peak, or else the largest buffer."""
    if memory.timeline(space.color) is None:
        return f"`hlomem show`: the dump of {memory.dump.title} has no live ranges"
    snapshot = build_snapshot(memory, space, by="line")
    for row in snapshot.rows:
        if row.key not in {ARGUMENTS, NOWHERE}:
            return _describe(row.key, row, snapshot.size)
    [first, *_] = build_snapshot(memory, space).rows
    return _describe(first.largest, first, snapshot.size)


def _describe(key: str, row: SnapshotRow, peak: int) -> str:
    share = f"{format_bytes(row.size)}, {percent(row.size, peak)} of the peak"
    return f"{key}: {share}, first {row.largest} {row.shape.partition('{')[0]} ({row.role})"
