"""A program's memory in one screen: size, roles, peak, lines at the peak, possible savings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.dump.eras import describe
from hlomem.dump.records import Record
from hlomem.report.data import roles
from hlomem.report.data.branches import ARGUMENTS
from hlomem.report.data.hints import Hint
from hlomem.report.data.occupancy import RoleShare, build_role_shares
from hlomem.report.data.peak import NOWHERE, Snapshot, build_snapshot, group, require_timeline
from hlomem.report.data.scoped import ScopedMemory, build_scoped
from hlomem.report.registry import REPORTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.machines.capacity import Capacity
    from hlomem.report.data.memory import Buffer, MemoryView, Space

TOP_LINES = 5
TOP_HINTS = 3
WORTH_SAYING = 0.01
"""Smallest fraction of a memory space for which a saving is mentioned."""


class Summary(Record, frozen=True, kw_only=True):
    """One memory space of a dump, and the names and sizes of the others."""

    name: str
    era: str
    backend: str
    device_count: int
    """The number of partitions; all sizes are per device."""
    spaces: tuple[Space, ...]
    space: Space
    capacity: Capacity | None
    roles: tuple[RoleShare, ...]
    """They add up to the size of the space."""
    fullest_step: int | None
    """The peak step, to which the roles refer."""
    peak: Snapshot | None
    """By source line if the dump has any, else by buffer."""
    hints: tuple[Hint, ...]
    notes: tuple[str, ...]
    scoped: ScopedMemory | None = None
    """VMEM of kernels and fusions; None where the dump does not tell it."""


def build_summary(memory: MemoryView, space: Space, capacity: Capacity | None = None) -> Summary:
    return Summary(
        name=memory.dump.title,
        era=describe(memory.dump.eras, memory.machine.package),
        backend=memory.machine_name,
        device_count=memory.device_count,
        spaces=memory.spaces,
        space=space,
        capacity=capacity,
        roles=build_role_shares(memory, space.color),
        fullest_step=memory.fullest_step(space.color),
        peak=None if memory.timeline(space.color) is None else _peak(memory, space),
        hints=build_hints(memory, space)[:TOP_HINTS],
        notes=(*(note.text for note in memory.dump.notes), *_notes_on(capacity)),
        scoped=build_scoped(memory),
    )


def _notes_on(capacity: Capacity | None) -> list[str]:
    """A note that a chip's nominal memory is more than programs get."""
    if capacity is None or not capacity.is_nominal:
        return []
    size = format_bytes(capacity.size)
    parts = [f"{size} is nominal for {capacity.name}: programs get less", capacity.note]
    return ["; ".join(filter(None, parts))]


def _peak(memory: MemoryView, space: Space) -> Snapshot:
    alive = memory.alive(space.color, require_timeline(memory, space).peak.step)
    lines = {row.key for row in group(alive, "line")[:TOP_LINES]}
    has_lines = not lines <= {ARGUMENTS, NOWHERE}
    return build_snapshot(memory, space, by="line" if has_lines else "buffer", top=TOP_LINES)


def build_hints(
    memory: MemoryView, space: Space, built: Mapping[str, Record] | None = None
) -> tuple[Hint, ...]:
    """Possible savings of at least WORTH_SAYING, largest first; `built` reports are reused."""
    built = built or {}
    hints = [
        report.hint_of(built.get(name) or report.build(memory, space))
        for name, report in REPORTS.items()
    ]
    found = [hint for hint in (_recompute(memory, space), *hints) if hint is not None]
    worth = [hint for hint in found if hint.size >= WORTH_SAYING * space.size]
    return tuple(sorted(worth, key=lambda hint: -hint.size))


def _recompute(memory: MemoryView, space: Space) -> Hint | None:
    timeline = memory.timeline(space.color)
    alive = memory.alive(space.color, timeline.peak.step) if timeline else []
    stacked = sum(size for buffer, size in alive if _is_kept(buffer, roles.STACKED))
    single = sum(size for buffer, size in alive if _is_kept(buffer, roles.ACTIVATIONS))
    if not stacked + single:
        return None
    kept = {"stacked by loops": stacked, "activations kept": single}
    what = " and ".join(words for words, size in kept.items() if size)
    words = f"{what} for the backward pass, which could recompute them (jax.checkpoint)"
    return Hint(size=stacked + single, what=words, command="peak --by role")


def _is_kept(buffer: Buffer, role: str) -> bool:
    """Whether it has a role and belongs to the forward pass, by its JAX name."""
    operation = buffer.op_name or ""
    return buffer.role == role and "jvp(" in operation and "transpose(" not in operation
