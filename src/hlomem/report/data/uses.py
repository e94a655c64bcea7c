"""The bytes of an allocation in use: which, when, and what for.

In: the buffers of one allocation. Out: uses that add up, at each step, to exactly the bytes that
belong to a buffer alive then. Buffers that share bytes while both are alive (a loop's versions of
its carry, an operand updated in place) count them once, for the role that tells most.

    time  0 ──a──── 3                  100 bytes at offset 0
              1 ──b──────── 5          100 bytes at offset 0: b is a, updated
                  2 ──c──── 5           50 bytes at offset 100
    use   100 100 150 150 150 150
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from hlomem.base.disjoint_sets import DisjointSets
from hlomem.base.named_tuples import NamedTuple
from hlomem.base.quantities import Offset, Step
from hlomem.report.data import roles
from hlomem.view.sweep import Residency, iter_sharing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.report.data.buffers import Buffer, Stay


class Usage(NamedTuple):
    """Bytes that one role has over some steps."""

    role: str
    start: int
    end: int
    """One past the last step."""
    size: int


_Place: TypeAlias = tuple[Offset, Offset, str]
"""First byte, one past the last, and the role."""
_Life: TypeAlias = tuple["Step", "Step"]
"""First and last step."""


def iter_uses(buffers: Sequence[Buffer | Stay]) -> Iterator[Usage]:
    """The uses by the buffers of an allocation; those whose lives are not known are left out."""
    if len(buffers) == 1:  # most often
        (buffer,) = buffers
        if buffer.start is not None and buffer.end is not None:
            yield Usage(buffer.role, buffer.start, buffer.end + 1, buffer.size)
        return
    if len(buffers) == 2 and (uses := _uses_of_two(*buffers)):  # arguments and what replaces them
        yield from uses
        return
    lives_at: dict[_Place, list[_Life]] = defaultdict(list)
    for buffer in buffers:
        if buffer.start is not None and buffer.end is not None:
            place = (buffer.offset, Offset(buffer.offset + buffer.size), buffer.role)
            lives_at[place].append((buffer.start, buffer.end))
    for island in _islands(sorted(lives_at)):
        runs = [(place, run) for place in island for run in _merged(lives_at[place])]
        if len(island) == 1:  # most often; one place is never used twice at a time
            for (start, end, role), (first, last) in runs:
                yield Usage(role, first, last + 1, end - start)
        else:
            yield from _crowded_uses(runs)


def _uses_of_two(one: Buffer | Stay, two: Buffer | Stay) -> list[Usage]:
    """The uses of the same bytes by two buffers; none where they lie elsewhere, or nobody knows."""
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
    """The use of an allocation of that size over `length` steps while nothing is in it."""
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
    """Whether uses that follow each other need all bytes at all steps, as those of arguments do."""
    reached = 0
    for _, start, stop, used in uses:
        if start != reached or used != size:
            return False
        reached = stop
    return reached == length


def _islands(places: Iterable[_Place]) -> Iterator[list[_Place]]:
    """Places in their order, those that share bytes together."""
    island: list[_Place] = []
    reached = 0
    for place in places:
        if island and place[0] >= reached:
            yield island
            island = []
        island.append(place)
        reached = max(reached, place[1])
    if island:
        yield island


def _merged(lives: list[_Life]) -> Iterator[_Life]:
    """Lives without a break between them as one."""
    lives.sort()
    first, last = lives[0]
    for start, end in lives:
        if start > last:
            yield first, last
            first, last = start, end
        elif end > last:
            last = end
    yield first, last


def _crowded_uses(runs: Iterable[tuple[_Place, _Life]]) -> Iterator[Usage]:
    """Uses where places share bytes, be it at different times."""
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
    """Groups of buffers that share bytes with one another, directly or through others."""
    sets = DisjointSets[int]()
    stay_of: dict[int, Residency[str]] = {}
    for one, two in pairs:
        stay_of.update({one.number: one, two.number: two})
        sets.unite(one.number, two.number)
    groups = sets.groups(stay_of).values()
    return [[stay_of[number] for number in group] for group in groups]


def _shared_uses(group: list[Residency[str]]) -> Iterator[Usage]:
    """Between two moments at which one of a group begins or ends, whose each byte is."""
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
    """The bytes that belong to at least one of these."""
    total, reached = 0, 0
    for start, end in sorted((stay.start, stay.end) for stay in stays):
        if end > reached:
            total += end - max(reached, start)
            reached = end
    return total
