"""A program's memory in one screen: how much, what for, when most, from which lines, what to gain.

In: a `Memory` and a space. Out: plain data whose roles add up to the space's size, and whose lines
are those of the peak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.sizes import format_bytes
from hlomem.dump.eras import describe
from hlomem.dump.records import Record
from hlomem.report.data import roles
from hlomem.report.data.copies import build_copies
from hlomem.report.data.donation import build_donation
from hlomem.report.data.holes import build_holes
from hlomem.report.data.padding import build_padding
from hlomem.report.data.peak import ARGUMENTS, NOWHERE, build_alive
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.machines.capacity import Capacity
    from hlomem.report.data.copies import Copies
    from hlomem.report.data.donation import Donation
    from hlomem.report.data.holes import Holes
    from hlomem.report.data.memory import Memory, RoleShare, Space
    from hlomem.report.data.padding import Padding
    from hlomem.report.data.peak import Alive

TOP_LINES = 5
TOP_HINTS = 3


class Hint(Record, frozen=True, kw_only=True):
    """Something that could be saved."""

    size: int
    """Bytes, at most."""
    what: str
    command: str
    """The command that shows it in detail."""


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
    peak: Alive | None
    """By source line where the dump names any, else by buffer."""
    hints: tuple[Hint, ...]
    """What could be saved, the most first."""
    notes: tuple[str, ...]


def build_summary(memory: Memory, space: Space, capacity: Capacity | None = None) -> Summary:
    """One screen's worth of a memory space."""
    return Summary(
        name=memory.dump.name,
        era=describe(memory.dump.eras),
        backend=memory.machine_name,
        spaces=memory.spaces,
        space=space,
        capacity=capacity,
        roles=memory.roles(space.color),
        fullest_step=memory.fullest_step(space.color),
        peak=None if memory.timeline(space.color) is None else _peak(memory, space),
        hints=build_hints(memory, space, build_savings(memory, space))[:TOP_HINTS],
        notes=(*(note.text for note in memory.dump.notes), *_notes_on(capacity)),
    )


def _notes_on(capacity: Capacity | None) -> list[str]:
    """A chip's nominal memory is more than programs get: by how much, it does not say."""
    if capacity is None or not capacity.is_nominal:
        return []
    size = format_bytes(capacity.size)
    parts = [f"{size} is nominal for {capacity.name}: programs get less", capacity.note]
    return ["; ".join(filter(None, parts))]


def _peak(memory: Memory, space: Space) -> Alive:
    by_line = build_alive(memory, space, by="line", top=TOP_LINES)
    if all(row.key in {ARGUMENTS, NOWHERE} for row in by_line.rows):
        return build_alive(memory, space, by="buffer", top=TOP_LINES)
    return by_line


def _kept_for_backward(memory: Memory, space: Space) -> int:
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


class Savings(NamedTuple):
    """The reports on what could be saved."""

    padding: Padding
    copies: Copies
    donation: Donation
    holes: Holes


def build_savings(memory: Memory, space: Space) -> Savings:
    """The reports on what could be saved in a space."""
    return Savings(
        build_padding(memory, space),
        build_copies(memory, space),
        build_donation(memory, space),
        build_holes(memory, space),
    )


def build_hints(memory: Memory, space: Space, savings: Savings) -> tuple[Hint, ...]:
    """What could be saved, the most first."""
    return tuple(sorted(_hints(memory, space, savings), key=lambda hint: -hint.size))


def _hints(memory: Memory, space: Space, savings: Savings) -> Iterator[Hint]:
    """What the other reports say could be saved at the peak."""
    padding, copies, donation, holes = savings
    if kept := _kept_for_backward(memory, space):
        yield Hint(
            size=kept,
            what="stacked by loops for the backward pass, which could recompute it "
            "(jax.checkpoint)",
            command="peak --by role",
        )
    if padding.padding_at_peak:
        worst = padding.rows[0]
        grown = ", ".join(map(str, worst.growths)) or "rounded up"
        yield Hint(
            size=padding.padding_at_peak,
            what=f"padding: first {worst.shape.partition('{')[0]}, {grown}",
            command="padding",
        )
    if copies.size_at_peak:
        worst_copy = copies.rows[0]
        yield Hint(
            size=copies.size_at_peak,
            what=f"copies at the peak, in {plural(copies.count_at_peak, 'buffer')}: first "
            f"{worst_copy.name} ({worst_copy.cause})",
            command="copies",
        )
    if donation.possible_size:
        first = next(row for row in donation.rows if row.state == "possible")
        yield Hint(
            size=donation.possible_size,
            what=f"arguments that could be donated: first {first.name}",
            command="donate",
        )
    if holes.size:
        yield Hint(
            size=holes.size,
            what="holes that packing leaves when temporaries need most",
            command="holes",
        )
