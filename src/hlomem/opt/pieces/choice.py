"""The regions at a program's peak that are computed in pieces, and in how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import EditError
from hlomem.opt.candidate import Candidate, changed, room_for
from hlomem.opt.constants import (
    LARGE_SHARE,
    MAX_PIECE_PLANS,
    MAX_PIECE_REGIONS,
    MAX_PIECE_SEEDS,
    NEARLY_ALL,
)
from hlomem.opt.pieces.editor import compute_in_pieces
from hlomem.opt.pieces.region import Reach, Region, find_region

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.pipeline import Stages

_ELEMENT = "get-tuple-element"


def in_pieces(candidate: Candidate, limit: int) -> Iterator[Candidate]:
    """The program with one region in pieces, with two, and so on, until it fits."""
    failed: set[str] = set()
    for _ in range(MAX_PIECE_REGIONS):
        if candidate.given.rules.exact or candidate.total <= limit:
            return
        made = _with_region(candidate, limit, failed)
        if not made:
            return
        yield from made
        candidate = made[-1]


class _Choice(NamedTuple):
    region: Region
    gain: int
    """Bytes alive at the peak that would be there in pieces only."""
    loss: int
    """Bytes of results that would be there in addition."""

    def saved(self, pieces: int) -> int:
        return self.gain - self.gain // pieces - self.loss

    @property
    def most_saved(self) -> int:
        return max(map(self.saved, _divisors(self.region)[-1:]), default=0)


def _with_region(candidate: Candidate, limit: int, failed: set[str]) -> list[Candidate]:
    """The program with the region in pieces that helps most at its peak, in more and more."""
    stages = candidate.plan
    missing = candidate.temporaries - room_for(stages, limit)
    plans = MAX_PIECE_PLANS
    for choice in _choices(candidate, failed):
        name = _name_of(choice.region)
        found: list[Candidate] = []
        for pieces in _numbers(choice, missing, has_clock=candidate.has_clock):
            made = _planned(candidate, choice.region, pieces) if plans > 0 else None
            plans -= 1
            if made is None or made.temporaries >= [candidate, *found][-1].temporaries:
                if found:
                    break
                continue  # more pieces may be smaller
            found.append(made)
            if made.total <= limit:
                break
        if found:
            return found
        failed.add(name)
    return []


def _numbers(choice: _Choice, missing: int, *, has_clock: bool) -> list[int]:
    """Numbers of pieces to try: the least that may do, else that leaves little, and more.

    With `has_clock` fewer come before, for what is too slow in many.
    """
    known = _divisors(choice.region)
    wanted = min(missing, round(NEARLY_ALL * choice.saved(known[-1])))
    first = next(one for one in known if choice.saved(one) >= wanted)
    fewer = [one for one in (first // 4, first // 2) if one in known and has_clock]
    more = [one for one in known if one % first == 0 and (one // first).bit_count() == 1]
    return [*fewer, *more]


def _divisors(region: Region) -> list[int]:
    """The numbers of equal pieces that a region has, rising."""
    most = min(region.pieces, region.most)
    return [one for one in range(2, most + 1) if region.pieces % one == 0]


def _planned(candidate: Candidate, region: Region, pieces: int) -> Candidate | None:
    stages = candidate.plan
    try:
        module = compute_in_pieces(stages.module, region, pieces)
    except EditError:
        return None
    return changed(candidate, module, "pieces")


# Regions at the peak.


def _choices(candidate: Candidate, failed: set[str]) -> Iterator[_Choice]:
    """Regions that hold much of what is alive at the peak, the best first."""
    stages, scopes = candidate.plan, candidate.given.rules.scopes
    size_of = stages.options.machine.size_of
    alive = _alive_at_peak(stages)
    sizes = {one: size_of(one.shape) for one in alive}
    least = max(candidate.temporaries // LARGE_SHARE, 1)
    seeds = sorted((one for one in alive if sizes[one] >= least), key=lambda one: -sizes[one])
    reaches: dict[HloComputation, Reach] = {}
    found: dict[frozenset[HloInstruction], _Choice] = {}
    for seed in seeds[:MAX_PIECE_SEEDS]:
        reach = reaches.setdefault(seed.parent, Reach(seed.parent))
        for dimension, size in enumerate(seed.shape.dimensions):
            if size == 1:
                continue
            region = find_region(seed, dimension, reach, size_of, least, scopes)
            if region is None or frozenset(region.solved) in found:
                continue
            internal = set(region.internal)
            gain = sum(size for one, size in sizes.items() if one in internal)
            added = [one for one in region.results if one not in sizes]
            choice = _Choice(region, gain, sum(size_of(one.shape) for one in added))
            is_good = choice.most_saved > 0
            if is_good and _name_of(region) not in failed:
                found[frozenset(region.solved)] = choice
    yield from sorted(found.values(), key=lambda one: -one.most_saved)


def _name_of(region: Region) -> str:
    """A name for a region that is the same in the next program."""
    first = min(region.solved, key=lambda one: one.index)
    return f"{first.name} along {region.solved[first].link.results}"


def _alive_at_peak(stages: Stages) -> list[HloInstruction]:
    """The arrays that are alive when temporaries take most."""
    ranges, values = stages.live_ranges.range_of, _temporaries(stages)
    changes: dict[int, int] = {}
    for value, size in values.items():
        start, end = ranges[value]
        changes[start] = changes.get(start, 0) + size
        changes[end + 1] = changes.get(end + 1, 0) - size
    level, most, peak = 0, 0, 0
    for time in sorted(changes):
        level += changes[time]
        if level > most:
            most, peak = level, time
    alive = [value for value in values if ranges[value].start <= peak <= ranges[value].end]
    return [one for one in map(_array_of, alive) if one is not None]


def _temporaries(stages: Stages) -> dict[HloValue, int]:
    ranges = stages.live_ranges.range_of
    return {
        value: place.size
        for allocation in stages.assignment.allocations
        if allocation.is_preallocated_temp
        for value, place in allocation.slices.items()
        if value in ranges
    }


def _array_of(value: HloValue) -> HloInstruction | None:
    """The instruction that is an array alone, where a value is one."""
    made = value.instruction
    if made.shape.is_array:
        return made
    if len(value.index) != 1:
        return None
    taken = [
        user
        for user in made.users
        if user.opcode == _ELEMENT and user.tuple_index == value.index[0]
    ]
    return taken[0] if taken else None
