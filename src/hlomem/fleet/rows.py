"""One program's memory as rows of the store's tables.

In: a `MemoryView`. Out: rows by table, whose sums are those of the commands: they are made of the
same reports. What a store must not hold, numbers of more than 64 bits, is an error.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from hlomem.assign.footprint import reserved
from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.dump.eras import describe
from hlomem.report.data import places, roles
from hlomem.report.data.copies import build_copies
from hlomem.report.data.donation import build_donation
from hlomem.report.data.lookup import find_space
from hlomem.report.data.padding import build_padding
from hlomem.report.data.peak import key_of
from hlomem.report.data.role_shares import build_role_shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.dump.records import Allocation
    from hlomem.report.data.copies import Copies
    from hlomem.report.data.donation import Donation
    from hlomem.report.data.memory import MemoryView, OwnedBytes, Space
    from hlomem.report.data.padding import Padding

Row = dict[str, Any]
_MAX_INTEGER = (1 << 63) - 1
_KINDS = {
    places.ARGUMENTS: "argument_bytes",
    places.DONATED: "donated_bytes",
    places.RESULTS: "result_bytes",
    places.CONSTANTS: "constant_bytes",
}


def build_rows(memory: MemoryView) -> dict[str, list[Row]]:
    """The rows of one program; the first of `modules` is its own."""
    space = find_space(memory, None)
    padding, copies = build_padding(memory, space), build_copies(memory, space)
    donation = build_donation(memory, space)
    shares = build_role_shares(memory, space.color)
    rows = {
        "modules": [_module(memory, space)],
        "spaces": [_space(memory, held) for held in memory.spaces],
        "roles": [
            {"role": share.role, "size": share.size, "count": share.count} for share in shares
        ],
        "allocations": [
            _allocation(memory, allocation) for allocation in memory.joined.allocations
        ],
        "buffers": list(_buffers(memory, space)),
        "padding": list(_padding(padding)),
        "donations": list(_donations(donation)),
        "copies": list(_copies(copies)),
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
    """The bytes of a space by what its allocations are for; they add up to its size."""
    sums = {**dict.fromkeys(_KINDS.values(), 0), "temporary_bytes": 0}
    for allocation in reserved(memory.joined.allocations, space.color):
        column = _KINDS.get(places.kind_of(allocation), "temporary_bytes")
        sums[column] += allocation.size
    return sums


def _signature(memory: MemoryView) -> str:
    """A hash of the arguments' shapes without layouts: that of a program's shape bucket."""
    shapes = sorted(
        (
            allocation.parameter.number,
            tuple(allocation.parameter.index),
            str(allocation.parameter.shape),
        )
        for allocation in memory.joined.allocations
        if allocation.parameter is not None
    )
    text = "\n".join(
        f"{number} {index} {shape.partition('{')[0]}" for number, index, shape in shapes
    )
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
        "kind": places.kind_of(allocation),
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
        largest = members[0]  # they come by size
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


def _padding(padding: Padding) -> Iterator[Row]:
    for row in padding.rows:
        yield {
            "space": padding.space,
            "shape": row.shape,
            "size": row.size,
            "padding": row.padding,
            "count": row.count,
            "count_at_peak": row.count_at_peak,
            "padding_at_peak": row.padding_at_peak,
            "fix": row.fix,
            "example": row.example,
            "line": row.source,
        }


def _donations(donation: Donation) -> Iterator[Row]:
    for row in donation.rows:
        yield {
            "space": donation.space,
            "argument": row.name,
            "number": row.number,
            "size": row.size,
            "shape": row.shape,
            "state": row.state,
            "result": row.result,
            "copied_bytes": row.copied_size,
            "why": row.why,
        }


def _copies(copies: Copies) -> Iterator[Row]:
    for row in copies.rows:
        yield {
            "space": copies.space,
            "buffer": row.name,
            "size": row.size,
            "shape": row.shape,
            "of": row.of,
            "cause": row.cause,
            "why": row.why,
            "is_at_peak": row.is_at_peak,
            "line": row.source,
        }
