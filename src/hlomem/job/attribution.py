"""The owners of memory: every chunk of a profile with its owner and the time it was held.

In: the calls of an allocator (`hlomem.job.events`) and the plans of the profile's programs. Out:
`Holding`s. The k-th request of an execution is the k-th allocation of its program's plan; programs
of one name are told apart by the sizes they ask for. What was there before the trace began is known
by its bytes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.dump.records import Record
from hlomem.job.owner_rows import FROM_HOST
from hlomem.job.plans import HOST_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.job.events import Call, Cause
    from hlomem.job.plans import PlannedProgram, Request

TEMPORARIES, RESULT, TABLE = "temporaries", "result", "tuple table"
STAGING = "staging on the host"
TUNING, LIBRARY, COMPILER = "autotuner", "scratch of a library", "compiler"
COPY, OLDER, OTHER, UNPLANNED = "copy of an array", "older than the trace", "other", "program"


class Holding(Record, frozen=True, kw_only=True):
    """A chunk from the call that asked for it to the one that gave it back."""

    address: int
    asked: int
    size: int
    start: int | None
    """The number of the call that asked for it; None where it is older than the trace."""
    end: int | None
    """The number of the call that gave it back; None where it outlives the trace."""
    owner: str
    """One of the words above."""
    name: str = ""
    """The program, the instruction that is tuned, or the shape of an array."""
    index: int | None = None
    """The allocation of the program's plan."""
    plan: int | None = None
    """The number of the program among `Attribution.programs`."""
    run: int | None = None
    function: str = ""


class Sums(NamedTuple):
    """How far the events agree with each other."""

    events: int
    wrong_in_use: int
    wrong_peak: int
    unknown: int
    """Allocations whose owner is not known."""


class _Begun(NamedTuple):
    """A chunk that was not given back yet."""

    number: int
    call: Call
    plan: int | None


class Attribution(NamedTuple):
    """An allocator's chunks over time."""

    allocator: str
    calls: tuple[Call, ...]
    holdings: tuple[Holding, ...]
    """By the time they were asked for; those older than the trace first."""
    older: int
    """Bytes in use when the trace began."""
    programs: tuple[PlannedProgram, ...]
    sums: Sums


def attribute(
    allocator: str, calls: Sequence[Call], programs: Sequence[PlannedProgram]
) -> Attribution:
    """The owners of everything one allocator gave away."""
    plans = _match_plans(calls, programs)
    older = _older(calls)
    live: dict[int, _Begun] = {}
    done: list[Holding] = []
    in_use, peak, wrong_in_use, wrong_peak = older, calls[0].peak if calls else 0, 0, 0
    for number, call in enumerate(calls):
        if call.is_free:
            began = live.pop(call.address, None)
            done.append(_holding(began, number, programs) if began else _older_one(call, number))
            in_use -= call.size
        else:
            live[call.address] = _Begun(number, call, plans.get(_run_of(call.cause)))
            in_use += call.size
            peak = max(peak, in_use)
        wrong_in_use += in_use != call.in_use
        wrong_peak += peak != call.peak
    done += [_holding(began, None, programs) for began in live.values()]
    done.sort(key=lambda one: -1 if one.start is None else one.start)
    unknown = sum(one.owner == OTHER and not one.name for one in done)
    sums = Sums(len(calls), wrong_in_use, wrong_peak, unknown)
    return Attribution(allocator, tuple(calls), tuple(done), older, tuple(programs), sums)


def _older(calls: Sequence[Call]) -> int:
    if not calls:
        return 0
    first = calls[0]
    return first.in_use + first.size if first.is_free else first.in_use - first.size


def _run_of(cause: Cause) -> tuple[str, int | None]:
    return cause.name, cause.run


def _match_plans(
    calls: Iterable[Call], programs: Sequence[PlannedProgram]
) -> dict[tuple[str, int | None], int]:
    """For each execution the program of its name that asks for just what it asked for."""
    asked: dict[tuple[str, int | None], list[int]] = {}
    for call in calls:
        if call.cause.kind == "program" and not call.is_free:
            asked.setdefault(_run_of(call.cause), []).append(call.asked)
    by_name: dict[str, list[int]] = {}
    for number, program in enumerate(programs):
        by_name.setdefault(program.name, []).append(number)
    found = {}
    for run, sizes in asked.items():
        fitting = [n for n in by_name.get(run[0], ()) if _fits(programs[n], sizes)]
        if fitting:
            found[run] = fitting[0]
    return found


def _fits(program: PlannedProgram, sizes: Sequence[int]) -> bool:
    """Whether an execution that may have failed on the way asked as the plan does."""
    here = [request.size for request in program.requests if request.color != HOST_MEMORY]
    return here[: len(sizes)] == list(sizes)


def _holding(began: _Begun, end: int | None, programs: Sequence[PlannedProgram]) -> Holding:
    number, call, plan = began
    cause = call.cause
    request: Request | None = None
    if plan is not None:
        here = [one for one in programs[plan].requests if one.color != HOST_MEMORY]
        request = here[cause.order] if cause.order < len(here) else None
    return Holding(
        address=call.address,
        asked=call.asked,
        size=call.size,
        start=number,
        end=end,
        owner=_owner(call, request),
        name=cause.name,
        index=None if request is None else request.index,
        plan=plan if request is not None else None,
        run=cause.run,
        function=cause.function,
    )


def _owner(call: Call, request: Request | None) -> str:
    kind = call.cause.kind
    if kind == "program":
        return UNPLANNED if request is None else request.role
    if kind == "host":
        return STAGING if "host" in call.allocator else FROM_HOST
    return {
        "library": LIBRARY,
        "tuning": TUNING,
        "compiler": COMPILER,
        "copy": COPY,
        "other": OTHER,
    }[kind]


def _older_one(call: Call, number: int) -> Holding:
    return Holding(
        address=call.address,
        asked=call.asked,
        size=call.size,
        start=None,
        end=number,
        owner=OLDER,
    )
