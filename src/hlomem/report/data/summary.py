"""A program's memory in one screen: how much, what for, when most, from which lines, what to gain.

In: a `MemoryView` and a space. Out: plain data whose roles add up to the space's size, and whose
lines are those of the peak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.dump.eras import describe
from hlomem.dump.records import Record
from hlomem.report.data import roles
from hlomem.report.data.hints import Hint
from hlomem.report.data.peak import ARGUMENTS, NOWHERE, build_snapshot
from hlomem.report.data.role_shares import build_role_shares
from hlomem.report.registry import REPORTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.machines.capacity import Capacity
    from hlomem.report.data.memory import MemoryView, Space
    from hlomem.report.data.peak import Snapshot
    from hlomem.report.data.role_shares import RoleShare

TOP_LINES = 5
TOP_HINTS = 3


class Summary(Record, frozen=True, kw_only=True):
    """One memory space of a dump, and the names and sizes of the others."""

    name: str
    era: str
    backend: str
    spaces: tuple[Space, ...]
    space: Space
    capacity: Capacity | None
    roles: tuple[RoleShare, ...]
    """They add up to the size of the space."""
    fullest_step: int | None
    """When temporaries need most; their roles are those of this step."""
    peak: Snapshot | None
    """By source line where the dump names any, else by buffer."""
    hints: tuple[Hint, ...]
    """What could be saved, the most first."""
    notes: tuple[str, ...]


def build_summary(memory: MemoryView, space: Space, capacity: Capacity | None = None) -> Summary:
    """One screen's worth of a memory space."""
    return Summary(
        name=memory.dump.title,
        era=describe(memory.dump.eras, memory.machine.package),
        backend=memory.machine_name,
        spaces=memory.spaces,
        space=space,
        capacity=capacity,
        roles=build_role_shares(memory, space.color),
        fullest_step=memory.fullest_step(space.color),
        peak=None if memory.timeline(space.color) is None else _peak(memory, space),
        hints=build_hints(memory, space)[:TOP_HINTS],
        notes=(*(note.text for note in memory.dump.notes), *_notes_on(capacity)),
    )


def _notes_on(capacity: Capacity | None) -> list[str]:
    """A chip's nominal memory is more than programs get: by how much, it does not say."""
    if capacity is None or not capacity.is_nominal:
        return []
    size = format_bytes(capacity.size)
    parts = [f"{size} is nominal for {capacity.name}: programs get less", capacity.note]
    return ["; ".join(filter(None, parts))]


def _peak(memory: MemoryView, space: Space) -> Snapshot:
    by_line = build_snapshot(memory, space, by="line", top=TOP_LINES)
    if all(row.key in {ARGUMENTS, NOWHERE} for row in by_line.rows):
        return build_snapshot(memory, space, by="buffer", top=TOP_LINES)
    return by_line


def _kept_for_backward(memory: MemoryView, space: Space) -> int:
    """Bytes at the peak that a loop of the forward pass stacks, by the names JAX gives them."""
    timeline = memory.timeline(space.color)
    alive = memory.alive(space.color, timeline.peak.step) if timeline else []
    return sum(
        size
        for buffer, size in alive
        if buffer.role == roles.STACKED
        and "jvp(" in (buffer.op_name or "")
        and "transpose(" not in (buffer.op_name or "")
    )


def build_hints(
    memory: MemoryView, space: Space, built: Mapping[str, Record] | None = None
) -> tuple[Hint, ...]:
    """What could be saved, the most first; reports that are `built` already are not built again."""
    built = built or {}
    hints = [
        report.hint_of(built.get(name) or report.build(memory, space))
        for name, report in REPORTS.items()
    ]
    found = [_recompute(memory, space), *hints]
    return tuple(sorted(filter(None, found), key=lambda hint: -hint.size))


def _recompute(memory: MemoryView, space: Space) -> Hint | None:
    kept = _kept_for_backward(memory, space)
    what = "stacked by loops for the backward pass, which could recompute it (jax.checkpoint)"
    return Hint(size=kept, what=what, command="peak --by role") if kept else None
