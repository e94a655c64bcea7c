"""One program's memory as rows of the store's tables, made from the reports of the commands."""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from hlomem.assign.footprint import reserved
from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.dump.eras import describe
from hlomem.report.data import allocation_kinds, roles
from hlomem.report.data.copies import build_copies
from hlomem.report.data.donation import build_donation
from hlomem.report.data.lookup import find_space
from hlomem.report.data.occupancy import build_role_shares
from hlomem.report.data.padding import build_padding
from hlomem.report.data.peak import key_of
from hlomem.report.data.scoped import build_scoped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.dump.records import Allocation, Record
    from hlomem.report.data.memory import MemoryView, OwnedBytes, Space

Row = dict[str, Any]
_MAX_INTEGER = (1 << 63) - 1
_KINDS = {
    allocation_kinds.ARGUMENTS: "argument_bytes",
    allocation_kinds.DONATED: "donated_bytes",
    allocation_kinds.RESULTS: "result_bytes",
    allocation_kinds.CONSTANTS: "constant_bytes",
}


def _columns(*names: str, **renamed: str) -> dict[str, str]:
    """Fields of a report's rows, by column."""
    return {**{name: name for name in names}, **renamed}


_PADDING = _columns(
    *("shape", "size", "padding", "count", "count_at_peak", "padding_at_peak", "fix", "example"),
    line="source",
)
_DONATIONS = _columns(
    *("number", "size", "shape", "state", "result", "why"),
    argument="name",
    copied_bytes="copied_size",
)
_COPIES = _columns(
    *("size", "shape", "of", "cause", "why", "is_at_peak"), buffer="name", line="source"
)

_KERNELS = _columns(
    *("instruction", "kind", "used", "limit", "is_own_limit", "op_name"),
    kernel="name",
    line="source",
    space="space",
)


def build_rows(memory: MemoryView) -> dict[str, list[Row]]:
    """The rows of one program by table; integers of more than 64 bits are an error."""
    space = find_space(memory, None)
    padding, copies = build_padding(memory, space), build_copies(memory, space)
    donation = build_donation(memory, space)
    shares, scoped = build_role_shares(memory, space.color), build_scoped(memory)
    rows = {
        "modules": [_module(memory, space)],
        "spaces": [_space(memory, held) for held in memory.spaces],
        "roles": [{"role": one.role, "size": one.size, "count": one.count} for one in shares],
        "allocations": [_allocation(memory, found) for found in memory.joined.allocations],
        "buffers": list(_buffers(memory, space)),
        "padding": _picked(padding.space, padding.rows, _PADDING),
        "donations": _picked(donation.space, donation.rows, _DONATIONS),
        "copies": _picked(copies.space, copies.rows, _COPIES),
        "kernels": _picked("", scoped.rows if scoped else (), _KERNELS),
    }
    [module] = rows["modules"]
    module["padding_bytes"] = padding.padding_at_peak
    module["copy_bytes"] = copies.size_at_peak
    module["donatable_bytes"] = donation.possible_size
    module["lost_bytes"] = sum(row.size for row in donation.rows if row.state == "lost")
    lost = (share.size for share in shares if share.role == roles.FRAGMENTATION)
    module["fragmentation_bytes"] = sum(lost)
    _check_integers(memory, rows)
    return rows


def _check_integers(memory: MemoryView, rows: dict[str, list[Row]]) -> None:
    for table in rows.values():
        for row in table:
            for value in row.values():
                if isinstance(value, int) and not -_MAX_INTEGER <= value <= _MAX_INTEGER:
                    where = visible(memory.dump.name)
                    raise InputError(f"{where}: a size of more than 64 bits: {value}")


def _module(memory: MemoryView, space: Space) -> Row:
    timeline = memory.timeline(space.color)
    step = timeline.peak.step if timeline else None
    moment = None if step is None else memory.moment(step)
    return {
        "name": memory.dump.title,
        "status": "ok",
        "is_planned": memory.is_planned,
        "has_module": memory.module is not None,
        "backend": memory.machine.platform,
        "era": describe(memory.dump.eras, memory.machine.package),
        "device_count": memory.device_count,
        "space": space.name,
        "needs": space.size,
        "peak": timeline.peak.size if timeline else None,
        "peak_step": step,
        "steps": memory.steps,
        "peak_instruction": moment.instruction if moment else None,
        "peak_line": moment.source if moment else None,
        "arguments": _signature(memory),
        **_sums_by_kind(memory, space),
    }


def _sums_by_kind(memory: MemoryView, space: Space) -> dict[str, int]:
    """The bytes of a space by kind of allocation; they add up to its size."""
    sums = {**dict.fromkeys(_KINDS.values(), 0), "temporary_bytes": 0}
    for allocation in reserved(memory.joined.allocations, space.color):
        column = _KINDS.get(allocation_kinds.kind_of(allocation), "temporary_bytes")
        sums[column] += allocation.size
    return sums


def _signature(memory: MemoryView) -> str:
    """A hash of the arguments' shapes without layouts, which identifies a shape bucket."""
    found = [allocation.parameter for allocation in memory.joined.allocations]
    shapes = sorted(
        (parameter.number, tuple(parameter.index), str(parameter.shape))
        for parameter in found
        if parameter is not None
    )
    text = "\n".join(f"{number} {part} {shape.partition('{')[0]}" for number, part, shape in shapes)
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _space(memory: MemoryView, space: Space) -> Row:
    timeline = memory.timeline(space.color)
    return {
        "space": space.name,
        "color": space.color,
        "size": space.size,
        "peak": timeline.peak.size if timeline else None,
        "allocation_count": space.allocation_count,
        "thread_local_bytes": space.thread_local,
    }


def _allocation(memory: MemoryView, allocation: Allocation) -> Row:
    parameter = allocation.parameter
    values = memory.buffers_in(allocation.index) if parameter is not None else []
    path = next((value.parameter for value in values if value.parameter), None)
    return {
        "space": memory.space_name(allocation.color),
        "index": allocation.index,
        "size": allocation.size,
        "kind": allocation_kinds.kind_of(allocation),
        "parameter": path or (f"parameter {parameter.number}" if parameter else None),
        "shape": str(parameter.shape) if parameter else None,
        "role": memory.role_of_allocation(allocation),
    }


def _buffers(memory: MemoryView, space: Space) -> Iterator[Row]:
    timeline = memory.timeline(space.color)
    groups: dict[tuple[str, str], list[OwnedBytes]] = defaultdict(list)
    for owned in memory.alive(space.color, timeline.peak.step) if timeline else ():
        groups[owned.buffer.role, key_of(owned.buffer, "line")].append(owned)
    for (role, line), members in groups.items():
        largest = members[0]  # sorted by size
        yield {
            "space": space.name,
            "role": role,
            "line": line,
            "size": sum(member.size for member in members),
            "count": len(members),
            "largest": largest.buffer.name,
            "largest_size": largest.size,
            "shape": largest.buffer.shape,
            "op_name": largest.buffer.op_name,
        }


def _picked(space: str, found: Iterable[Record], columns: dict[str, str]) -> list[Row]:
    return [
        {"space": space, **{name: getattr(row, field) for name, field in columns.items()}}
        for row in found
    ]
