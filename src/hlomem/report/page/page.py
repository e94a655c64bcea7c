"""The data of the HTML report: everything the page draws, as plain columns.

In: a `MemoryView`. Out: `Page`, which goes into the page as JSON. The numbers are those of the
other reports, the verdict is the checker's; the page only draws them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from hlomem.assign.footprint import reserved
from hlomem.base.quantities import NEVER
from hlomem.dump.eras import describe
from hlomem.dump.records import Record
from hlomem.machines.registry import CHIPS
from hlomem.report.data import roles
from hlomem.report.data.bands import Band, build_bands
from hlomem.report.data.branches import ARGUMENTS, UNNAMED
from hlomem.report.data.copies import build_copies
from hlomem.report.data.donation import build_donation
from hlomem.report.data.holes import build_holes
from hlomem.report.data.names import short_program
from hlomem.report.data.occupancy import ownership_key
from hlomem.report.data.padding import build_padding
from hlomem.report.data.peak import NOWHERE
from hlomem.report.data.phases import Phase, build_phases
from hlomem.report.data.places import kind_of
from hlomem.report.data.role_shares import build_role_shares
from hlomem.report.data.skyline import Layer, build_skyline
from hlomem.report.data.summary import build_hints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.check.findings import Verdict
    from hlomem.dump.records import Allocation
    from hlomem.machines.capacity import Capacity
    from hlomem.report.data.advice import AdviceReport
    from hlomem.report.data.copies import Copy
    from hlomem.report.data.donation import Argument
    from hlomem.report.data.hints import Hint
    from hlomem.report.data.holes import Hole
    from hlomem.report.data.memory import Buffer, MemoryView, Space
    from hlomem.report.data.padding import PaddedShape
    from hlomem.report.data.role_shares import RoleShare
    from hlomem.report.data.roles import Role
    from hlomem.report.data.timeline import Summit

_TOP = 200
"""Rows of a table; the commands list all."""
_MAX_CHECKED = 10_000
"""Values of a plan that is checked for its page; checking more takes longer than all the rest."""


class PageAllocation(Record, frozen=True, kw_only=True):
    """An allocation of a space."""

    index: int
    size: int
    kind: str
    role: str
    """The role of its values; where they differ, one of them."""
    label: str
    """The argument it holds, or its kind."""
    is_shared_over_time: bool
    """Whether different values use its bytes one after another."""
    owner: int
    """The place in `Page.buffers` of the argument or result it is held for; -1 for none."""


class PageSpace(Record, frozen=True, kw_only=True):
    """One memory space."""

    color: int
    name: str
    size: int
    allocations: tuple[PageAllocation, ...]
    roles: tuple[RoleShare, ...]
    """They add up to the size."""
    fullest_step: int | None
    peak: Summit | None
    near_peaks: tuple[Summit, ...]
    layers: tuple[Layer, ...]
    """They add up to the bytes alive at each step."""
    hints: tuple[Hint, ...]
    padding: tuple[PaddedShape, ...]
    growths: tuple[str, ...]
    """How the dimensions of each of them grow, in words."""
    donation: tuple[Argument, ...]
    copies: tuple[Copy, ...]
    holes: tuple[Hole, ...]


class Columns(Record, frozen=True, kw_only=True):
    """The buffers, a list per field; texts are numbers of `Page.texts`, -1 for none."""

    id: list[int]
    name: list[int]
    shape: list[int]
    op_name: list[int]
    source: list[int]
    opcode: list[int]
    parameter: list[int]
    role: list[int]
    """Its place in `Page.roles`."""
    rank: list[int]
    """Of buffers that share bytes, the one of the lowest rank is said to hold them."""
    allocation: list[int]
    offset: list[int]
    size: list[int]
    padding: list[int]
    start: list[int]
    """-1, as `end`, where the dump does not say."""
    end: list[int]
    last_use: list[int]
    """The instruction that reads it last."""


class Trust(Record, frozen=True, kw_only=True):
    """The basis of the numbers."""

    files: tuple[str, ...]
    is_planned: bool
    """Whether the plan is ours: then nothing was read but the module's text."""
    has_module: bool
    era: str
    verdict: Verdict | None
    """None where the plan is too large to check in passing."""
    notes: tuple[str, ...]


class Labels(Record, frozen=True, kw_only=True):
    """Names of groups of buffers whose own names or lines are not known."""

    arguments: str = ARGUMENTS
    no_line: str = NOWHERE
    unnamed: str = UNNAMED


class Page(Record, frozen=True, kw_only=True):
    """One report."""

    name: str
    backend: str
    sequence: tuple[str, ...]
    bands: tuple[Band, ...]
    phases: tuple[Phase, ...]
    roles: tuple[Role, ...]
    labels: Labels
    chips: dict[str, int]
    """The memory of one device, by the chip's name."""
    nominal_chips: tuple[str, ...]
    """Those of which only the data sheet's figure is known."""
    chip: str
    """The one it was compiled for, or is asked about; empty where neither is said."""
    capacity: int | None
    """A device's memory that was given as a number."""
    advice: AdviceReport | None
    """None where no changes were tried."""
    spaces: tuple[PageSpace, ...]
    texts: list[str]
    buffers: Columns
    trust: Trust


def is_quick(memory: MemoryView) -> bool:
    """The plan is small enough to be checked, and changes of it to be tried, in passing."""
    return len(memory.joined.placed) <= _MAX_CHECKED


def build_page(
    memory: MemoryView, capacity: Capacity | None = None, advice: AdviceReport | None = None
) -> Page:
    """The data of a report; the plan is checked for it, where it is not very large."""
    texts = _Texts()
    return Page(
        name=short_program(memory.dump.name),
        backend=memory.machine_name,
        sequence=tuple(memory.joined.sequence),
        bands=build_bands(memory),
        phases=build_phases(memory),
        roles=roles.ROLES,
        labels=Labels(),
        chips={name: chip.size for name, chip in CHIPS.items()},
        nominal_chips=tuple(name for name, chip in CHIPS.items() if chip.is_nominal),
        chip=_chip(memory, capacity),
        capacity=capacity.size if capacity and not capacity.name else None,
        advice=advice,
        spaces=tuple(_space(memory, space) for space in memory.spaces),
        buffers=_columns(memory, texts),
        texts=texts.all,
        trust=Trust(
            files=tuple(part.name for part in memory.dump.parts),
            is_planned=memory.is_planned,
            has_module=memory.module is not None,
            era=describe(memory.dump.eras, memory.machine.package),
            verdict=_judge(memory) if is_quick(memory) else None,
            notes=tuple(note.text for note in memory.dump.notes),
        ),
    )


def _chip(memory: MemoryView, capacity: Capacity | None) -> str:
    """The chip whose memory the program is held against."""
    if capacity is not None:
        return capacity.name
    chip = memory.given_machine.chip_name if memory.given_machine else ""
    return chip if chip in CHIPS else ""


def _judge(memory: MemoryView) -> Verdict:
    from hlomem.check.verify import verify_joined  # noqa: PLC0415 - large plans do without

    return verify_joined(memory.joined, module=memory.module, machine=memory.given_machine)


def _space(memory: MemoryView, space: Space) -> PageSpace:
    layers = build_skyline(memory, space.color)  # first: the curve is counted from the same uses
    timeline = memory.timeline(space.color)
    padding, copies = build_padding(memory, space), build_copies(memory, space)
    donation, holes = build_donation(memory, space), build_holes(memory, space)
    built = {"padding": padding, "copies": copies, "donate": donation, "holes": holes}
    padded = padding.rows[:_TOP]
    shared = {allocation.index for allocation in memory.temporary_allocations(space.color)}
    return PageSpace(
        color=space.color,
        name=space.name,
        size=space.size,
        allocations=tuple(
            _allocation(memory, allocation, allocation.index in shared)
            for allocation in reserved(memory.joined.allocations, space.color)
        ),
        roles=build_role_shares(memory, space.color),
        fullest_step=memory.fullest_step(space.color),
        peak=timeline.peak if timeline else None,
        near_peaks=timeline.near_peaks if timeline else (),
        layers=layers,
        hints=build_hints(memory, space, built),
        padding=padded,
        growths=tuple(", ".join(map(str, row.growths)) or "rounded up" for row in padded),
        donation=donation.rows[:_TOP],
        copies=copies.rows[:_TOP],
        holes=tuple(hole for allocation in holes.allocations for hole in allocation.holes)[:_TOP],
    )


def _allocation(
    memory: MemoryView, allocation: Allocation, is_shared_over_time: bool
) -> PageAllocation:
    values = memory.buffers_in(allocation.index)
    kind, owner = kind_of(allocation), memory.owner(allocation)
    return PageAllocation(
        index=allocation.index,
        size=allocation.size,
        kind=kind,
        role=owner.role if owner else roles.TEMPORARIES,
        label=(values[0].parameter if values else None) or kind,
        is_shared_over_time=is_shared_over_time,
        owner=memory.number_of_buffer[owner.id] if owner else -1,
    )


class _Texts(dict[str | None, int]):
    """The number of each text, which is its place among them; -1 for none."""

    def __init__(self) -> None:
        self[None] = -1

    def __missing__(self, text: str | None) -> int:
        number = self[text] = len(self) - 1
        return number

    @property
    def all(self) -> list[str]:
        return [text for text in self if text is not None]


def _columns(memory: MemoryView, number_of: _Texts) -> Columns:
    buffers = memory.buffers
    number_of_role = {role: number for number, role in enumerate(roles.MEANING)}
    return Columns(
        id=[buffer.id for buffer in buffers],
        name=[number_of[buffer.name] for buffer in buffers],
        shape=[number_of[buffer.shape] for buffer in buffers],
        op_name=[number_of[buffer.op_name] for buffer in buffers],
        source=[number_of[buffer.source] for buffer in buffers],
        opcode=[number_of[buffer.opcode] for buffer in buffers],
        parameter=[number_of[buffer.parameter] for buffer in buffers],
        role=[number_of_role[buffer.role] for buffer in buffers],
        rank=_ranks(buffers),
        allocation=[buffer.allocation for buffer in buffers],
        offset=[buffer.offset for buffer in buffers],
        size=[buffer.size for buffer in buffers],
        padding=[buffer.padding for buffer in buffers],
        start=[-1 if buffer.start is None else buffer.start for buffer in buffers],
        end=[-1 if buffer.end is None else buffer.end for buffer in buffers],
        last_use=[number_of[name] for name in _last_uses(memory)],
    )


def _ranks(buffers: Sequence[Buffer]) -> list[int]:
    """The places of the buffers when sorted by who is said to hold shared bytes."""
    claims = [ownership_key(buffer) for buffer in buffers]
    ranks = [0] * len(claims)
    for rank, number in enumerate(sorted(range(len(claims)), key=claims.__getitem__)):
        ranks[number] = rank
    return ranks


def _last_uses(memory: MemoryView) -> list[str | None]:
    """The instruction that reads each buffer last; None where nothing reads it, or nobody says."""
    time_of = defaultdict(lambda: NEVER, memory.joined.time_of).__getitem__
    used = [(placed.used.uses if placed.used else None) or () for placed in memory.joined.placed]
    return [
        max([use.instruction for use in uses], key=time_of)
        if len(uses) > 1
        else (uses[0].instruction if uses else None)
        for uses in used
    ]
