"""The data of the HTML report, embedded as JSON: the numbers of the other reports, as columns."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from hlomem.assign.footprint import reserved
from hlomem.base.quantities import NEVER
from hlomem.dump.eras import describe
from hlomem.dump.records import Allocation, Record
from hlomem.machines.registry import CHIPS
from hlomem.report.data import roles
from hlomem.report.data.allocation_kinds import kind_of
from hlomem.report.data.bands import Band, build_bands
from hlomem.report.data.branches import ARGUMENTS, UNNAMED
from hlomem.report.data.copies import Copy, build_copies
from hlomem.report.data.donation import Argument, build_donation
from hlomem.report.data.holes import Hole, build_holes
from hlomem.report.data.names import short_program
from hlomem.report.data.occupancy import RoleShare, build_role_shares, ownership_key
from hlomem.report.data.padding import PaddedShape, build_padding
from hlomem.report.data.peak import NOWHERE
from hlomem.report.data.phases import Phase, build_phases
from hlomem.report.data.scoped import ScopedMemory, build_scoped
from hlomem.report.data.shard import ShardedArray, build_shard
from hlomem.report.data.sharding.finding import ShardingFinding  # noqa: TC001 - msgspec reads it
from hlomem.report.data.summary import build_hints
from hlomem.report.data.timeline import Layer, Summit, build_skyline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.check.findings import Verdict
    from hlomem.machines.capacity import Capacity
    from hlomem.report.data.advice import AdviceReport
    from hlomem.report.data.hints import Hint
    from hlomem.report.data.memory import Buffer, MemoryView, Space
    from hlomem.report.data.roles import Role

_TOP = 200
"""Rows of a table; the commands list all."""
_MAX_CHECKED = 10_000
"""Values up to which a plan is checked for its page; checking would dominate for larger ones."""


class PageAllocation(Record, frozen=True, kw_only=True):
    index: int
    size: int
    kind: str
    role: str
    """The role of its values, or of one of them."""
    label: str
    """Its argument, or its kind."""
    is_shared_over_time: bool
    """Whether different values use its bytes over time."""
    owner: int
    """The index in `Page.buffers` of the argument or result it is reserved for, or -1."""


class PageSpace(Record, frozen=True, kw_only=True):
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
    """A description of the padding of each."""
    donation: tuple[Argument, ...]
    copies: tuple[Copy, ...]
    holes: tuple[Hole, ...]
    shardings: tuple[ShardedArray, ...]
    """Arguments, results and large values; empty where the program is not partitioned."""
    sharding_findings: tuple[ShardingFinding, ...]


class Columns(Record, frozen=True, kw_only=True):
    """The buffers, one list per field; texts are indices into `Page.texts`, or -1."""

    id: list[int]
    name: list[int]
    shape: list[int]
    op_name: list[int]
    source: list[int]
    opcode: list[int]
    parameter: list[int]
    role: list[int]
    """Indices into `Page.roles`."""
    rank: list[int]
    """Of buffers that share bytes, the one of the lowest rank owns them."""
    allocation: list[int]
    offset: list[int]
    size: list[int]
    padding: list[int]
    start: list[int]
    """-1, like `end`, if unknown."""
    end: list[int]
    last_use: list[int]


class Trust(Record, frozen=True, kw_only=True):
    files: tuple[str, ...]
    is_planned: bool
    """Whether hlomem made the plan, from the module's text alone."""
    has_module: bool
    era: str
    verdict: Verdict | None
    """None if the plan is too large to check."""
    notes: tuple[str, ...]


class Labels(Record, frozen=True, kw_only=True):
    """Names of groups of buffers without names or lines."""

    arguments: str = ARGUMENTS
    no_line: str = NOWHERE
    unnamed: str = UNNAMED


class Page(Record, frozen=True, kw_only=True):
    name: str
    backend: str
    sequence: tuple[str, ...]
    bands: tuple[Band, ...]
    phases: tuple[Phase, ...]
    roles: tuple[Role, ...]
    labels: Labels
    chips: dict[str, int]
    nominal_chips: tuple[str, ...]
    """Chips for which only the data sheet's figure is known."""
    chip: str
    """The chip it was compiled for or is compared with, or empty."""
    capacity: int | None
    """The device memory, if given as a number."""
    advice: AdviceReport | None
    """None if no changes were tried."""
    spaces: tuple[PageSpace, ...]
    texts: list[str]
    buffers: Columns
    trust: Trust
    scoped: ScopedMemory | None = None
    """VMEM of kernels and fusions; None where the dump does not tell it."""


def is_quick(memory: MemoryView) -> bool:
    """Whether the plan is small enough to be checked, and changes of it to be tried."""
    return len(memory.joined.placed) <= _MAX_CHECKED


def build_page(
    memory: MemoryView, capacity: Capacity | None = None, advice: AdviceReport | None = None
) -> Page:
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
            verdict=_check(memory) if is_quick(memory) else None,
            notes=tuple(note.text for note in memory.dump.notes),
        ),
        scoped=build_scoped(memory),
    )


def _chip(memory: MemoryView, capacity: Capacity | None) -> str:
    if capacity is not None:
        return capacity.name
    chip = memory.given_machine.chip_name if memory.given_machine else ""
    return chip if chip in CHIPS else ""


def _check(memory: MemoryView) -> Verdict:
    from hlomem.check.verify import verify_joined  # noqa: PLC0415 - not for large plans

    return verify_joined(memory.joined, module=memory.module, machine=memory.given_machine)


def _space(memory: MemoryView, space: Space) -> PageSpace:
    layers = build_skyline(memory, space.color)  # first: the timeline reuses its uses
    timeline = memory.timeline(space.color)
    padding, copies = build_padding(memory, space), build_copies(memory, space)
    donation, holes = build_donation(memory, space), build_holes(memory, space)
    built = {"padding": padding, "copies": copies, "donate": donation, "holes": holes}
    padded = padding.rows[:_TOP]
    shard = build_shard(memory, space) if memory.device_count > 1 else None
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
        shardings=() if shard is None else (*shard.arguments, *shard.results, *shard.values)[:_TOP],
        sharding_findings=() if shard is None else shard.findings,
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
    """The index of each text; -1 for None."""

    def __init__(self) -> None:
        self[None] = -1

    def __missing__(self, text: str | None) -> int:
        number = self[text] = len(self) - 1
        return number

    @property
    def all(self) -> list[str]:
        return [text for text in self if text is not None]


_TEXTS = ("name", "shape", "op_name", "source", "opcode", "parameter")
_NUMBERS = ("id", "allocation", "offset", "size", "padding")


def _columns(memory: MemoryView, number_of: _Texts) -> Columns:
    buffers = memory.buffers
    number_of_role = {role: number for number, role in enumerate(roles.MEANING)}
    texts = {field: [number_of[getattr(one, field)] for one in buffers] for field in _TEXTS}
    numbers = {field: [getattr(one, field) for one in buffers] for field in _NUMBERS}
    return Columns(
        **texts,
        **numbers,
        role=[number_of_role[buffer.role] for buffer in buffers],
        rank=_ranks(buffers),
        start=[-1 if buffer.start is None else buffer.start for buffer in buffers],
        end=[-1 if buffer.end is None else buffer.end for buffer in buffers],
        last_use=[number_of[name] for name in _last_uses(memory)],
    )


def _ranks(buffers: Sequence[Buffer]) -> list[int]:
    claims = [ownership_key(buffer) for buffer in buffers]
    ranks = [0] * len(claims)
    for rank, number in enumerate(sorted(range(len(claims)), key=claims.__getitem__)):
        ranks[number] = rank
    return ranks


def _last_uses(memory: MemoryView) -> list[str | None]:
    """The last reader of each buffer; None if there is none or it is unknown."""
    time_of = defaultdict(lambda: NEVER, memory.joined.time_of).__getitem__
    used = [placed.uses for placed in memory.joined.placed]
    return [
        max([use.instruction for use in uses], key=time_of)
        if len(uses) > 1
        else (uses[0].instruction if uses else None)
        for uses in used
    ]
