"""A timeline as one page that zooms: from the whole run to one instruction of one program.

In: the allocators of a profile and the timeline of one of them. Out: the text of the file. Chunks
are columns, as there may be many thousands; each program that ran brings the curve of its own plan,
so that a run can be opened.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hlomem.dump.file_names import author_name
from hlomem.dump.records import Record
from hlomem.report.page.html import fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.job.attribution import Attribution, Holding
    from hlomem.job.plans import PlannedProgram
    from hlomem.job.timeline import Timeline, TimelineBuilder

_SECOND = 10**12
_MOST_STEPS = 600
"""Points of a program's own curve."""


class TimelineChunks(Record, frozen=True, kw_only=True):
    """Chunks of memory, a list per field, by the time they were asked for."""

    start: list[float]
    """Seconds; before the trace where a chunk is older."""
    end: list[float]
    """After the trace where a chunk outlives it."""
    size: list[int]
    owner: list[int]
    """A number among the page's words, as are the next two."""
    name: list[int]
    line: list[int]


class TimelineRuns(Record, frozen=True, kw_only=True):
    """Runs of programs, a list per field."""

    start: list[float]
    end: list[float]
    name: list[int]
    plan: list[int]


class TimelinePlan(Record, frozen=True, kw_only=True):
    """The curve of a program's own plan."""

    name: str
    peak: int
    steps: int
    sizes: list[int]
    """The most alive in each stretch of the schedule."""
    moments: list[str]
    """The instruction and line at which that is."""


class TimelinePage(Record, frozen=True, kw_only=True):
    """The page of a timeline."""

    name: str
    limit: int
    start: float
    end: float
    peak: int
    peak_time: float
    base: int
    """Bytes older than the trace that were never given back: they are in no chunk."""
    about: str
    words: list[str]
    chunks: TimelineChunks
    runs: TimelineRuns
    plans: tuple[TimelinePlan, ...]
    notes: tuple[str, ...]


def format_timeline(builder: TimelineBuilder, timeline: Timeline) -> str:
    """The page."""
    page = build_timeline_page(builder, timeline)
    return fill("timeline", page.name, {"timeline": page})


def build_timeline_page(builder: TimelineBuilder, timeline: Timeline) -> TimelinePage:
    """The data of the page."""
    found = builder.attribution(timeline.allocator)
    words: dict[str, int] = {}
    plans = list(dict.fromkeys(one.plan for one in found.holdings if one.plan is not None))
    plan_of = {
        (one.name, one.run): plans.index(one.plan) for one in found.holdings if one.plan is not None
    }
    older = sum(one.size for one in found.holdings if one.start is None)
    exact = "sums are the allocator's own" if timeline.is_exact else "sums are not exact"
    runs = builder.calls.executions
    return TimelinePage(
        name=timeline.name,
        limit=timeline.limit,
        start=timeline.start,
        end=timeline.end,
        peak=timeline.peak,
        peak_time=timeline.peak_time,
        base=found.older - older,
        about=f"{timeline.allocator}, {timeline.events} events; {exact}",
        chunks=_chunks(builder, found, timeline, words),
        runs=TimelineRuns(
            start=[run.start / _SECOND for run in runs],
            end=[run.end / _SECOND for run in runs],
            name=[_number(words, author_name(run.program)) for run in runs],
            plan=[plan_of.get((run.program, run.run), -1) for run in runs],
        ),
        plans=tuple(_plan(builder.programs[plan]) for plan in plans),
        notes=timeline.notes,
        words=list(words),
    )


def _number(words: dict[str, int], word: str) -> int:
    """The number of a word, which is added where it is new."""
    return words.setdefault(word, len(words))


def _chunks(
    builder: TimelineBuilder, found: Attribution, timeline: Timeline, words: dict[str, int]
) -> TimelineChunks:
    kept = found.holdings
    times = [call.time / _SECOND for call in found.calls]
    return TimelineChunks(
        start=[timeline.start - 1 if one.start is None else times[one.start] for one in kept],
        end=[timeline.end + 1 if one.end is None else times[one.end] for one in kept],
        size=[one.size for one in kept],
        owner=[_number(words, one.owner) for one in kept],
        name=[_number(words, author_name(one.name)) for one in kept],
        line=[_number(words, _line(builder, one)) for one in kept],
    )


def _line(builder: TimelineBuilder, holding: Holding) -> str:
    """The line most of a chunk is for."""
    shares = [(size, line) for line, size in builder.lines_of(holding) if line]
    return max(shares)[1] if shares else ""


def _plan(program: PlannedProgram) -> TimelinePlan:
    memory = program.memory
    curve = None if memory is None else memory.timeline(0)
    name = author_name(program.name)
    if memory is None or curve is None:
        return TimelinePlan(name=name, peak=0, steps=0, sizes=[], moments=[])
    peaks = _stretches(curve.sizes)
    moments = [memory.moment(step) for step in peaks]
    return TimelinePlan(
        name=name,
        peak=curve.peak.size,
        steps=len(curve.sizes),
        sizes=[curve.sizes[step] for step in peaks],
        moments=["  ".join(filter(None, (one.instruction, one.source))) for one in moments],
    )


def _stretches(sizes: Sequence[int]) -> list[int]:
    """The highest step of each stretch of a schedule."""
    count = min(_MOST_STEPS, len(sizes))
    bounds = [len(sizes) * number // count for number in range(count + 1)]
    return [max(range(low, high), key=lambda step: sizes[step]) for low, high in pairwise(bounds)]
