"""Computations that the GPU compiler made since fusion, put in order by the numbers of parameters.

Bodies of fusions, bodies around one instruction, asynchronous computations and rematerialized
bodies: all their parameters are called `param_0`, and `NameUniquer` numbers them as they are made,
whichever pass does it. `RenameFusions` leaves no other trace.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hlomem.history.computations.incremental_order import (
    NONE_VANISHED,
    Vanished,
    sorted_incrementally,
)
from hlomem.history.names import split_number
from hlomem.hlo.opcodes import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.history.computations.engine import Claims
    from hlomem.history.evidence import Trace, Traces
    from hlomem.hlo.ir import HloComputation

FUSION = "PriorityFusion, MultiOutputFusion"
_REMATERIALIZED = ".remat"
_NUMBERED_PARAMETER = "param_0"
_NEVER = float("inf")

Stamped = list[tuple[float, "Trace"]]
"""Computations with the time they were made at, as their parameters are numbered."""


def sort_by_time(made: list[Trace], claims: Claims) -> list[Trace]:
    """All that was made since fusion, the oldest first."""
    fused = claims.made_by(FUSION)
    numbered = made[len(fused) :]
    late = _stamp_numbered(numbered)
    roughly = [trace.computation for trace in (*claims.older, *made)]
    order = sorted_incrementally(roughly, claims.traces.call_graph, len(claims.older))
    stamped = [*_stamp_fused(fused, order, late), *late]
    stamped.sort(key=lambda entry: entry[0])
    return [trace for _, trace in stamped]


def is_rematerialized(body: Trace) -> bool:
    """True if it is the body of a fusion that runs again to save memory."""
    return any(_REMATERIALIZED in site.name for site in body.sites)


def _time(body: Trace) -> int | None:
    """The time at which a body got its first parameter, None where that is not known."""
    parameter = body.parameter
    is_stamped = parameter is not None and parameter.base == _NUMBERED_PARAMETER
    return parameter.number if parameter is not None and is_stamped else None


def _stamp_numbered(computations: list[Trace]) -> Stamped:
    """By their parameters; what has none is as old as the next that has."""
    stamped: Stamped = []
    next_time = _NEVER
    for computation in reversed(computations):
        time = _time(computation)
        next_time = next_time if time is None else time
        stamped.append((next_time, computation))
    stamped.reverse()
    return stamped


def _stamp_fused(fused: list[Trace], order: Sequence[HloComputation], late: Stamped) -> Stamped:
    """By their parameters; what has none was made when its caller was gone through.

    Fusion goes through one computation after the other, about in `order`. A number from the time of
    a later one belongs to a body that a later pass made. So do those from the time of what is
    `late`, of which only transfers to the host are older than all fusions.
    """
    place_of = {computation: place for place, computation in enumerate(order)}

    def caller(body: Trace) -> int:
        return place_of.get(body.sites[0].parent, -1) if body.sites else -1

    groups = [list(group) for _, group in itertools.groupby(sorted(fused, key=caller), key=caller)]
    visits = [[(_time(body), body) for body in group] for group in groups]
    begin = min(itertools.chain.from_iterable(map(_times, visits)), default=0)
    end = min((time for time, _ in late if time > begin), default=_NEVER)
    visits = _in_order_of_times(visits, end)
    stamped: Stamped = []
    latest = -1.0
    for visit, visit_end in zip(visits, _ends(visits, end), strict=True):
        latest = max([latest, *(time for time in _times(visit) if time < visit_end)])
        for time, body in visit:
            if is_rematerialized(body):
                stamped.append((_NEVER if time is None else time, body))
            elif time is None or _is_renewed(time, body, visit_end):
                stamped.append((latest + 0.5, body))
            else:
                stamped.append((time, body))
    return stamped


_Visit = list[tuple[int | None, "Trace"]]
"""The bodies in one computation that fusion went through, with the time they were made at."""


def _times(visit: _Visit) -> list[int]:
    return [time for time, _ in visit if time is not None]


def _ends(visits: list[_Visit], end: float) -> list[float]:
    """The end of each visit: before the first time of any later one."""
    ends: list[float] = []
    for visit in reversed(visits):
        ends.append(end)
        end = min([end, *_times(visit)])
    return ends[::-1]


def _in_order_of_times(visits: list[_Visit], end: float) -> list[_Visit]:
    """Sorted by their first times; what has none by its names, or else after the one before it.

    `RenameFusions` goes through the same computations: of bodies that are called the same, the one
    with the smaller number belongs to an earlier visit.
    """
    ends = _ends(visits, end)
    starts = [_start(visit, visit_end) for visit, visit_end in zip(visits, ends, strict=True)]
    timed = [
        (start, *split_number(body.name))
        for start, visit in zip(starts, visits, strict=True)
        for _, body in visit
        if start < _NEVER
    ]
    previous = -1.0
    for place, visit in enumerate(visits):
        if starts[place] == _NEVER:
            names = dict(split_number(body.name) for _, body in visit)
            later = [
                start - 0.5 for start, base, number in timed if number > names.get(base, number)
            ]
            starts[place] = min([previous, *later])
        previous = starts[place]
    return [visits[place] for place in sorted(range(len(visits)), key=starts.__getitem__)]


def _start(visit: _Visit, visit_end: float) -> float:
    """The first time of a visit, as far as it tells."""
    kept = (
        time for time, body in visit if time is not None and not _is_renewed(time, body, visit_end)
    )
    return min(kept, default=_NEVER)


def _is_renewed(time: float, body: Trace, visit_end: float) -> bool:
    return time >= visit_end and _took_other_in(body)


def _took_other_in(body: Trace) -> bool:
    """True if a later pass put clones of another body into this one, and renewed its parameters.

    `MultiOutputFusion` does so; but of a single instruction it makes a new body first.
    """
    instructions = body.computation.instructions
    own = [inner for inner in instructions if inner.opcode not in ("parameter", "tuple")]
    kept = [inner for inner in own if "clone" not in inner.name]
    return body.computation.root.opcode == "tuple" and 1 < len(kept) < len(own)


# Computations that temporarily wrapped a collective: all become asynchronous, in computations of
# their own (`service/gpu/gpu_hlo_schedule.cc: RunAsyncCollectivesConversionPasses`), and some
# synchronous again (`GpuConvertAsyncCollectivesToSync`), whose callers have moved in the order.


def synchronized_collectives(created: list[HloComputation], traces: Traces) -> Vanished:
    """The computations of collectives that are synchronous again, by the order of all others."""
    count_in = {
        trace.computation: sum(
            inner.opcode in COLLECTIVES for inner in trace.computation.instructions
        )
        for trace in traces.values()
        if not trace.is_fused and not _is_asynchronous(trace)
    }
    if not any(count_in.values()):
        return NONE_VANISHED
    older_count = _fusion_end([traces[computation] for computation in created])
    callers: list[HloComputation] = []
    for computation in sorted_incrementally(created, traces.call_graph, older_count):
        callers += [computation] * count_in.get(computation, 0)
    return Vanished(older_count, callers)


def _fusion_end(created: list[Trace]) -> int:
    """The number of computations made before collectives became asynchronous.

    After them come bodies around one instruction and other asynchronous computations, except for
    transfers to the host, which are older than fusion.
    """
    has_fused = False
    for rank, trace in enumerate(created):
        is_late = trace.name.startswith("wrapped_") or _is_asynchronous(trace)
        if has_fused and is_late:
            return rank
        has_fused |= trace.is_fused and not is_late
    return len(created)


def _is_asynchronous(trace: Trace) -> bool:
    return trace.is_called_by("async-start")
