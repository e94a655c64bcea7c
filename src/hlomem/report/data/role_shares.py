"""The bytes of a memory space by purpose, added up.

In: a `MemoryView` and the color of a space. Out: one share a role; the shares add up to the sum of
the space's allocations, padding, alignment and fragmentation among
them. Whose a byte is changes over time: the shares are those of the peak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.footprint import reserved
from hlomem.dump.records import Record
from hlomem.report.data import roles
from hlomem.report.data.occupancy import alignment_gaps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.dump.records import Allocation
    from hlomem.report.data.memory import MemoryView


class RoleShare(Record, frozen=True, kw_only=True):
    """The bytes of a memory space that are for one thing."""

    role: str
    size: int
    count: int
    """How many buffers; 0 for what is no buffer."""


def build_role_shares(memory: MemoryView, color: int) -> tuple[RoleShare, ...]:
    """The bytes of a space at its peak by purpose, largest first; they add up to its size."""
    shares: dict[str, list[int]] = {}
    step = memory.fullest_step(color)
    for allocation in reserved(memory.joined.allocations, color):
        for role, size in _roles_of(memory, allocation, step):
            shares.setdefault(role, []).append(size)
    made = [
        RoleShare(role=role, size=sum(all_), count=0 if role in roles.NO_BUFFERS else len(all_))
        for role, all_ in shares.items()
        if sum(all_) or role not in roles.NO_BUFFERS
    ]
    return tuple(sorted(made, key=lambda share: (-share.size, share.role)))


def _roles_of(
    memory: MemoryView, allocation: Allocation, step: int | None
) -> Iterator[tuple[str, int]]:
    if step is None:
        values = memory.buffers_in(allocation.index)
        # The largest value is the one the allocation was made for.
        padding = max(values, key=lambda value: value.size).padding if values else 0
        padding = min(padding, allocation.size)
        yield memory.role_of_allocation(allocation) or roles.TEMPORARIES, allocation.size - padding
        yield roles.PADDING, padding
        return
    owned, taken = memory.share_out(allocation, step)
    for buffer, size in owned:
        padding = size * buffer.padding // buffer.size if buffer.size else 0
        yield buffer.role, size - padding
        yield roles.PADDING, padding
    granule = memory.machine.alignment(allocation.color) or 1
    alignment = sum(alignment_gaps(taken, allocation.size, granule))
    yield roles.ALIGNMENT, alignment
    in_use = sum(end - start for start, end in taken)
    yield roles.FRAGMENTATION, allocation.size - in_use - alignment
