"""A dump in one screen: totals by memory space and kind, and the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.footprint import footprint, main_space, reserved
from hlomem.dump.eras import describe
from hlomem.dump.records import LiveRanges, PeakBuffer, Record, SpaceReport
from hlomem.hlo.text.attributes import read_metadata
from hlomem.machines.registry import platform_machine
from hlomem.report.data.allocation_kinds import kind_of
from hlomem.view.guess_machine import platform_of_dump
from hlomem.view.instruction_line import source_of
from hlomem.view.joined import JoinedDump, indexed, join_dump

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hlomem.dump.dump import Dump
    from hlomem.machines.machine import Machine

TOP_BUFFERS = 10


class Share(Record, frozen=True, kw_only=True):
    name: str
    size: int
    count: int


class LiveBuffer(Record, frozen=True, kw_only=True):
    name: str
    size: int
    """Without padding, as XLA counts at the peak."""
    shape: str | None = None
    op_name: str | None = None
    source: str | None = None


class PeakOverview(Record, frozen=True, kw_only=True):
    """The peak as XLA reports it."""

    moment: int
    steps: int
    instruction: str | None
    size: int
    """The sum of the buffers; aliases count each time, padding does not."""
    buffers: tuple[LiveBuffer, ...]
    buffer_count: int


class Overview(Record, frozen=True, kw_only=True):
    """A dump in one screen; fields its files do not tell are None or empty."""

    name: str
    era: str
    needs: int | None
    """The bytes that must fit in the main memory space; None if no allocations are listed."""
    space: str | None
    total: int | None
    """XLA's own total over all spaces."""
    allocation_count: int | None
    """Of the main memory space."""
    spaces: tuple[Share, ...] = ()
    """All memory spaces; they add up to `total`."""
    kinds: tuple[Share, ...] = ()
    """The kinds of the main space's allocations; they add up to `needs`."""
    peak: PeakOverview | None = None
    notes: tuple[str, ...] = ()


def build_overview(dump: Dump) -> Overview:
    allocations = dump.assignment.allocations if dump.assignment else ()
    here = reserved(allocations, main_space(allocations))
    total = _total(dump)
    return Overview(
        name=dump.title,
        era=describe(dump.eras, _machine(dump).package),
        needs=footprint(here, main_space(here)) if dump.assignment else None,
        space=_space_names(dump).get(here[0].color) if here else None,
        total=total,
        allocation_count=len(here) if dump.assignment else None,
        spaces=_spaces(dump),
        kinds=_shares((kind_of(allocation), allocation.size) for allocation in here),
        peak=None if dump.live_ranges is None else _peak(dump, dump.live_ranges),
        notes=tuple(note.text for note in dump.notes),
    )


def _space_names(dump: Dump) -> Mapping[int, str]:
    return _machine(dump).memory_spaces


def _total(dump: Dump) -> int | None:
    if dump.assignment is not None:
        return sum(allocation.size for allocation in dump.assignment.allocations)
    if dump.values is not None:
        return dump.values.total_bytes
    if dump.report is None:
        return None
    if isinstance(dump.report, SpaceReport):
        return sum(space.total_bytes for space in dump.report.spaces)
    return dump.report.total_bytes


def _machine(dump: Dump) -> Machine:
    machine = platform_machine(platform_of_dump(dump)[0])
    assert machine is not None
    return machine


def _spaces(dump: Dump) -> tuple[Share, ...]:
    if dump.assignment is not None:
        names = _space_names(dump)
        return _shares(
            (_space_name(allocation.color, names), allocation.size)
            for allocation in dump.assignment.allocations
        )
    report = dump.report if isinstance(dump.report, SpaceReport) else None
    if report is not None:
        named = [
            (_space_name(space.color, {space.color: space.name}), space) for space in report.spaces
        ]
        return tuple(
            Share(name=name, size=space.total_bytes, count=len(space.tables))
            for name, space in named
        )
    return ()


def _space_name(color: int, names: Mapping[int, str]) -> str:
    name = names.get(color)
    return f"{name} (color {color})" if name else f"color {color}"


def _shares(named_sizes: Iterable[tuple[str, int]]) -> tuple[Share, ...]:
    sizes: dict[str, list[int]] = {}
    for name, size in named_sizes:
        sizes.setdefault(name, []).append(size)
    rows = [Share(name=name, size=sum(all_), count=len(all_)) for name, all_ in sizes.items()]
    return tuple(sorted(rows, key=lambda row: (-row.size, row.name)))


def _peak(dump: Dump, live: LiveRanges) -> PeakOverview | None:
    if (peak := live.peak) is None:
        return None
    largest = sorted(enumerate(peak.buffers), key=lambda entry: (-entry[1].size, entry[0]))
    joined = join_dump(dump)
    return PeakOverview(
        moment=peak.moment,
        steps=live.end,
        instruction=live.sequence[peak.moment] if 0 <= peak.moment < len(live.sequence) else None,
        size=sum(buffer.size for buffer in peak.buffers),
        buffers=tuple([_live_buffer(buffer, joined) for _, buffer in largest[:TOP_BUFFERS]]),
        buffer_count=len(peak.buffers),
    )


def _live_buffer(buffer: PeakBuffer, joined: JoinedDump) -> LiveBuffer:
    placed = joined.placed_by_name.get((buffer.instruction, buffer.index or ()))
    metadata = read_metadata(joined.text_of.get(buffer.instruction, ""))
    return LiveBuffer(
        name=indexed(buffer.instruction, buffer.index),
        size=buffer.size,
        shape=placed.value.shape if placed else None,
        op_name=metadata.op_name or None,
        source=source_of(metadata) or None,
    )
