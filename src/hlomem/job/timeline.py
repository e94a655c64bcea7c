"""The memory of a device over a run: how much, when most, and who held it then.

In: a profile's calls with their owners (`hlomem.job.attribution`), and perhaps a device memory
profile that names arrays older than the trace. Out: `Timeline`. Sums are the allocator's own; where
the trace begins with the job the twin replays it, which gives the pool and its largest block.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from hlomem.base.errors import CommandError
from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record
from hlomem.job import attribution as owners
from hlomem.job.array_lines import ArrayLines
from hlomem.job.attribution import attribute
from hlomem.job.owner_rows import WASTE, OwnerRow, merge_rows
from hlomem.job.plans import LineShare
from hlomem.job.replay import replay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.job.attribution import Attribution, Holding
    from hlomem.job.events import Call, Calls
    from hlomem.job.plans import PlannedProgram
    from hlomem.job.replay import PoolState

_SECOND = 10**12
_MAX_POINTS = 2000


class Point(Record, frozen=True, array_like=True):
    """Bytes in use from a time on."""

    time: float
    """Seconds since the trace began."""
    in_use: int


class Moment(Record, frozen=True, kw_only=True):
    """Everything an allocator had given away at a time."""

    time: float
    in_use: int
    rows: tuple[OwnerRow, ...]
    """Largest first; they add up to `in_use`."""
    with_line: int
    """Bytes whose line is known."""
    largest_free: int | None
    """None where the trace began after the job: the pool cannot be replayed."""


class Timeline(Record, frozen=True, kw_only=True):
    """One allocator over a run."""

    name: str
    """The profile."""
    allocator: str
    others: tuple[str, ...]
    """Allocators of the same profile."""
    limit: int
    events: int
    is_exact: bool
    """Whether the sums of the events are the allocator's own, at every event."""
    older: int
    """Bytes in use when the trace began."""
    start: float
    end: float
    peak: int
    peak_time: float
    final: int
    """Bytes in use at the end."""
    pool: int | None
    pool_kind: str
    """`grown`, `taken at once`, or empty where it is not known."""
    twin_agrees: int
    """Events, from the first on, at which the twin has the same address, chunk and sums."""
    moment: Moment
    curve: tuple[Point, ...]
    executions: int
    programs: tuple[str, ...]
    notes: tuple[str, ...]


class TimelineBuilder:
    """A profile's allocators, of which one is looked at."""

    def __init__(
        self,
        name: str,
        calls: Calls,
        programs: Sequence[PlannedProgram],
        arrays: ArrayLines | None = None,
    ) -> None:
        self.name = name
        self.calls = calls
        self.programs = tuple(programs)
        self._arrays = arrays or ArrayLines(())
        by_allocator: dict[str, list[Call]] = {}
        for call in calls.calls:
            by_allocator.setdefault(call.allocator, []).append(call)
        self._by_allocator = by_allocator
        self._attributions: dict[str, Attribution] = {}

    @property
    def allocators(self) -> tuple[str, ...]:
        """Allocators of devices by their largest peak, then those of the host."""

        def order(name: str) -> tuple[bool, int, str]:
            peak = max(call.in_use for call in self._by_allocator[name])
            return "host" in name, -peak, name

        return tuple(sorted(self._by_allocator, key=order))

    def attribution(self, allocator: str) -> Attribution:
        """The owners of an allocator's chunks."""
        if allocator not in self._attributions:
            calls = self._by_allocator[allocator]
            self._attributions[allocator] = attribute(allocator, calls, self.programs)
        return self._attributions[allocator]

    def build(self, allocator: str | None = None, at: str | None = None) -> Timeline:
        """The timeline of one allocator, with its owners at the peak or at a time in seconds."""
        chosen = self._choose(allocator)
        found = self.attribution(chosen)
        calls = found.calls
        peak = max(calls, key=lambda call: call.in_use)
        place = calls.index(peak) if at in (None, "peak") else _place_at(calls, str(at))
        run = replay(calls)
        states = run.states if run else []
        return Timeline(
            name=self.name,
            allocator=chosen,
            others=tuple(name for name in self.allocators if name != chosen),
            limit=calls[0].limit,
            events=len(calls),
            is_exact=not (found.sums.wrong_in_use or found.sums.wrong_peak),
            older=found.older,
            start=calls[0].time / _SECOND,
            end=calls[-1].time / _SECOND,
            peak=peak.in_use,
            peak_time=peak.time / _SECOND,
            final=calls[-1].in_use,
            pool=states[-1].pool if len(states) == len(calls) else None,
            pool_kind=run.kind if run and states else "",
            twin_agrees=len(states),
            moment=self._moment(found, place, states[place] if place < len(states) else None),
            curve=tuple(_curve(calls)),
            executions=len(self.calls.executions),
            programs=tuple(sorted({run.program for run in self.calls.executions})),
            notes=(*self.calls.notes, *_notes(found, len(states))),
        )

    def _choose(self, allocator: str | None) -> str:
        names = self.allocators
        if not names:
            problem = "; ".join(self.calls.notes) or "no allocator wrote events"
            raise CommandError(f"{self.name}: {problem}")
        if allocator is None:
            return names[0]
        if allocator not in names:
            raise CommandError(f"no allocator `{allocator}`; there are {', '.join(names)}")
        return allocator

    def _moment(self, found: Attribution, place: int, state: PoolState | None) -> Moment:
        call = found.calls[place]
        live = [one for one in found.holdings if _is_live(one, place)]
        rows = merge_rows(self._rows(live, call.in_use, found.calls))
        return Moment(
            time=call.time / _SECOND,
            in_use=call.in_use,
            rows=rows,
            with_line=sum(row.size for row in rows if row.line),
            largest_free=None if state is None else state.largest_free,
        )

    def _rows(
        self, live: Sequence[Holding], in_use: int, calls: Sequence[Call]
    ) -> Iterator[OwnerRow]:
        """The parts of a moment; they add up to the bytes in use."""
        known = [one for one in live if one.owner != owners.OLDER]
        for one in known:
            for line, size in self.lines_of(one):
                yield OwnerRow(
                    size=size,
                    owner=one.owner,
                    name=one.name,
                    allocation=one.index,
                    line=line or "",
                    since=None if one.start is None else calls[one.start].time / _SECOND,
                )
        waste = sum(one.size - one.asked for one in known)
        if waste:
            yield OwnerRow(size=waste, count=len(known), owner=WASTE)
        yield from self._older_rows(in_use - sum(one.size for one in known))

    def lines_of(self, holding: Holding) -> list[tuple[str | None, int]]:
        """A holding's bytes by line: of its plan, of a memory profile, of the traced Python."""
        shares = [LineShare(None, holding.asked)]
        if holding.plan is not None and holding.index is not None:
            shares = list(self.programs[holding.plan].lines_of(holding.index, holding.asked))
        if len(shares) == 1 and shares[0].line is None:
            address = holding.address if holding.end is None else None
            named = self._arrays.line_of(holding.asked, address) or holding.function or None
            shares = [LineShare(named, holding.asked)]
        return [(share.line, share.size) for share in shares]

    def _older_rows(self, size: int) -> Iterator[OwnerRow]:
        """Rows for bytes older than the trace, by the lines a memory profile has for them."""
        for line, amount in self._arrays.sizes_by_line():
            part = min(amount, size)
            if part > 0:
                yield OwnerRow(size=part, owner=owners.OLDER, line=line)
                size -= part
        if size:
            yield OwnerRow(size=size, owner=owners.OLDER)


def _is_live(holding: Holding, place: int) -> bool:
    """Whether a chunk was given away before or by a call, and not given back by then."""
    return (holding.start is None or holding.start <= place) and (
        holding.end is None or holding.end > place
    )


def _place_at(calls: Sequence[Call], at: str) -> int:
    """The last call before a time in seconds."""
    try:
        time = float(at)
    except ValueError:
        raise CommandError(f"`{at}` is no time in seconds such as 1.25, nor `peak`") from None
    place = bisect_right(calls, time * _SECOND, key=lambda call: call.time) - 1
    if place < 0:
        first = calls[0].time / _SECOND
        raise CommandError(f"nothing happened before {at} s: the first event is at {first:.3f} s")
    return place


def _notes(found: Attribution, agrees: int) -> Iterator[str]:
    if found.older:
        yield (
            f"{format_bytes(found.older)} were in use when the trace began: whose they are only a"
            " device memory profile of that time can tell (--arrays)"
        )
    first = found.calls[0]
    before = first.peak if first.is_free or first.peak != first.in_use else 0
    if before > max(call.in_use for call in found.calls):
        yield f"the allocator's maximum, {format_bytes(before)}, was before the trace began"
    if not agrees:
        yield "the pool cannot be replayed: the trace began after the allocator's first call"
    elif agrees < len(found.calls):
        yield f"the pool is known for the first {agrees} events only: then the replay differs"
    wrong = found.sums.wrong_in_use + found.sums.wrong_peak
    if wrong:
        yield f"{wrong} sums of {found.sums.events} events are not the allocator's: events are lost"


def _curve(calls: Sequence[Call]) -> Iterator[Point]:
    """Bytes in use over time; of many events the least and the most of each stretch."""
    stride = max(1, 2 * len(calls) // _MAX_POINTS)
    for start in range(0, len(calls), stride):
        part = calls[start : start + stride]
        ends = {min(part, key=_in_use), max(part, key=_in_use)} if stride > 1 else set(part)
        for call in sorted(ends, key=lambda call: call.time):
            yield Point(call.time / _SECOND, call.in_use)


def _in_use(call: Call) -> int:
    return call.in_use
