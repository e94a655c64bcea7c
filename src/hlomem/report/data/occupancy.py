"""The owners of an allocation's bytes at one step, its uses over time, and shares by role.

Buffers that share bytes while alive (versions of a loop's carry, an operand updated in place)
count them once, for the buffer or role of the lowest rank. Byte ranges exclude their end.

    time  0 ──a──── 3                  100 bytes at offset 0
              1 ──b──────── 5          100 bytes at offset 0: b is a, updated
                  2 ──c──── 5           50 bytes at offset 100
    use   100 100 150 150 150 150
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.assign.footprint import reserved
from hlomem.base.disjoint_sets import DisjointSets
from hlomem.base.quantities import Offset, Step
from hlomem.dump.records import Allocation, Record
from hlomem.hlo.opcodes import MERGING
from hlomem.hlo.padding import round_up
from hlomem.report.data import roles
from hlomem.view.sweep import Residency, iter_sharing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.report.data.buffers import Buffer, Stay
    from hlomem.report.data.memory import MemoryView


ByteRange: TypeAlias = tuple[int, int]


class OwnedBytes(NamedTuple):
    buffer: Buffer
    size: int


def share_out(alive: Iterable[Buffer]) -> tuple[list[OwnedBytes], list[ByteRange]]:
    """The owner of every byte, and the byte ranges in use, sorted and disjoint."""
    buffers = list(alive)
    if len(buffers) < 2:  # the common case
        ranges: list[ByteRange] = [
            (buffer.offset, buffer.offset + buffer.size) for buffer in buffers if buffer.size > 0
        ]
        return [OwnedBytes(buffer, buffer.size) for buffer in buffers], ranges
    taken: list[ByteRange] = []
    owned = [
        OwnedBytes(buffer, _claim_bytes(taken, buffer.offset, buffer.offset + buffer.size))
        for buffer in sorted(buffers, key=ownership_key)
    ]
    return [part for part in owned if part.size or not part.buffer.size], taken


def alignment_gaps(taken: Sequence[ByteRange], size: int, alignment: int) -> Iterator[int]:
    for (_, end), (limit, _) in pairwise([*taken, (size, size)]):
        yield max(0, min(round_up(end, alignment), limit) - end)


def ownership_key(buffer: Buffer) -> tuple[int, bool, bool, int]:
    """Sort key: of buffers that share bytes, the first is their owner."""
    is_argument = buffer.opcode == "parameter" and buffer.parameter is not None
    is_handed_on = buffer.opcode in MERGING and not is_argument
    return (roles.rank(buffer.role), buffer.op_name is None, is_handed_on, buffer.id)


def _claim_bytes(taken: list[ByteRange], start: int, end: int) -> int:
    """Add [start, end) to sorted, disjoint ranges; the number of bytes that are new."""
    low = bisect_left(taken, start, key=lambda taken_range: taken_range[1])
    high = low
    covered = 0
    first, last = start, end
    while high < len(taken) and taken[high][0] <= end:
        covered += max(0, min(end, taken[high][1]) - max(start, taken[high][0]))
        first, last = min(first, taken[high][0]), max(last, taken[high][1])
        high += 1
    if end > start:
        taken[low:high] = [(first, last)]
    return end - start - covered


class Usage(NamedTuple):
    role: str
    start: int
    end: int
    """One past the last step."""
    size: int


_Extent: TypeAlias = tuple[Offset, Offset, str]
"""First byte, one past the last, and the role."""
_Life: TypeAlias = tuple["Step", "Step"]
"""First and last step."""


def iter_uses(buffers: Sequence[Buffer | Stay]) -> Iterator[Usage]:
    """The uses by the buffers of an allocation, except those without a live range."""
    if len(buffers) == 1:  # the common case
        (buffer,) = buffers
        if buffer.start is not None and buffer.end is not None:
            yield Usage(buffer.role, buffer.start, buffer.end + 1, buffer.size)
        return
    if len(buffers) == 2 and (uses := _uses_of_two(*buffers)):  # arguments and what replaces them
        yield from uses
        return
    lives_at: dict[_Extent, list[_Life]] = defaultdict(list)
    for buffer in buffers:
        if buffer.start is not None and buffer.end is not None:
            extent = (buffer.offset, Offset(buffer.offset + buffer.size), buffer.role)
            lives_at[extent].append((buffer.start, buffer.end))
    for island in _islands(sorted(lives_at)):
        runs = [(extent, run) for extent in island for run in _merged(lives_at[extent])]
        if len(island) == 1:  # the common case: nothing overlaps
            for (start, end, role), (first, last) in runs:
                yield Usage(role, first, last + 1, end - start)
        else:
            yield from _crowded_uses(runs)


def _uses_of_two(one: Buffer | Stay, two: Buffer | Stay) -> list[Usage]:
    """The uses of two buffers of the same extent; empty if it differs or a lifetime is unknown."""
    if one.offset != two.offset or one.size != two.size:
        return []
    if roles.rank(one.role) <= roles.rank(two.role):
        owner, guest = one, two
    else:
        owner, guest = two, one
    if owner.start is None or owner.end is None or guest.start is None or guest.end is None:
        return []
    size = owner.size
    uses = [Usage(owner.role, owner.start, owner.end + 1, size)]
    if guest.start < owner.start:
        uses.append(Usage(guest.role, guest.start, min(guest.end + 1, owner.start), size))
    if guest.end > owner.end:
        uses.append(Usage(guest.role, max(guest.start, owner.end + 1), guest.end + 1, size))
    if len(uses) == 1:
        uses.append(Usage(guest.role, guest.start, guest.end + 1, 0))
    return uses


def iter_held(uses: Sequence[Usage], size: int, role: str, length: int) -> Iterator[Usage]:
    """The unused bytes of an allocation over `length` steps, as uses of its owner's role."""
    if _fill(uses, size, length):
        return
    changes = {0: size, length: 0}
    for _, start, stop, used in uses:
        changes[start] = changes.get(start, 0) - used
        changes[stop] = changes.get(stop, 0) + used
    free = 0
    for start, stop in pairwise(sorted(changes)):
        free += changes[start]
        if free > 0:
            yield Usage(role, start, stop, free)


def _fill(uses: Iterable[Usage], size: int, length: int) -> bool:
    """Whether consecutive uses fill all bytes at all steps, as those of arguments do."""
    reached = 0
    for _, start, stop, used in uses:
        if start != reached or used != size:
            return False
        reached = stop
    return reached == length


def _islands(extents: Iterable[_Extent]) -> Iterator[list[_Extent]]:
    """Sorted extents, grouped by overlap."""
    island: list[_Extent] = []
    reached = 0
    for extent in extents:
        if island and extent[0] >= reached:
            yield island
            island = []
        island.append(extent)
        reached = max(reached, extent[1])
    if island:
        yield island


def _merged(lives: list[_Life]) -> Iterator[_Life]:
    lives.sort()
    first, last = lives[0]
    for start, end in lives:
        if start > last:
            yield first, last
            first, last = start, end
        elif end > last:
            last = end
    yield first, last


def _crowded_uses(runs: Iterable[tuple[_Extent, _Life]]) -> Iterator[Usage]:
    stays = [
        Residency(first, last, number, start, end, role)
        for number, ((start, end, role), (first, last)) in enumerate(runs)
    ]
    groups = _sharing_groups(iter_sharing(stays))
    in_group = {stay.number for group in groups for stay in group}
    for first, last, number, start, end, role in stays:
        if number not in in_group:
            yield Usage(role, first, last + 1, end - start)
    for group in groups:
        yield from _shared_uses(group)


def _sharing_groups(
    pairs: Iterable[tuple[Residency[str], Residency[str]]],
) -> list[list[Residency[str]]]:
    """Connected components of buffers that share bytes."""
    sets = DisjointSets[int]()
    stay_of: dict[int, Residency[str]] = {}
    for one, two in pairs:
        stay_of.update({one.number: one, two.number: two})
        sets.unite(one.number, two.number)
    groups = sets.groups(stay_of).values()
    return [[stay_of[number] for number in group] for group in groups]


def _shared_uses(group: list[Residency[str]]) -> Iterator[Usage]:
    """The bytes of each role between two steps at which a member begins or ends."""
    begins: dict[int, list[Residency[str]]] = defaultdict(list)
    ends: dict[int, list[Residency[str]]] = defaultdict(list)
    for stay in group:
        begins[stay.first].append(stay)
        ends[stay.last + 1].append(stay)
    alive: dict[int, Residency[str]] = {}
    for start, stop in pairwise(sorted({*begins, *ends})):
        for stay in ends.get(start, ()):
            del alive[stay.number]
        alive.update((stay.number, stay) for stay in begins.get(start, ()))
        counted: list[Residency[str]] = []
        taken = 0
        for role in sorted({stay.who for stay in alive.values()}, key=roles.rank):
            counted += [stay for stay in alive.values() if stay.who == role]
            size = _occupied(counted)
            yield Usage(role, start, stop, size - taken)
            taken = size


def _occupied(stays: Iterable[Residency[str]]) -> int:
    total, reached = 0, 0
    for start, end in sorted((stay.start, stay.end) for stay in stays):
        if end > reached:
            total += end - max(reached, start)
            reached = end
    return total


class RoleShare(Record, frozen=True, kw_only=True):
    role: str
    size: int
    count: int
    """The number of buffers; 0 for padding, alignment and fragmentation."""


def build_role_shares(memory: MemoryView, color: int) -> tuple[RoleShare, ...]:
    """The bytes of a space at its peak by role, largest first; they add up to its size."""
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
        # The largest value determines the allocation.
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
