"""The memory of a job before it runs: every request its log and plans imply, through the twin.

In: a `JobLog`, the limit of the pool and how it is taken. Out: `Forecast`: the peak, when, and who
holds it; the pool; whether the job fits, and the smallest pool in which it does. A run asks for the
allocations of its plan in order; temporaries and tuple tables go back once the launch is enqueued,
an argument that is donated lives on as the result that takes its memory.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record
from hlomem.job import tuning
from hlomem.job.attribution import TUNING as TUNER
from hlomem.job.bfc import BfcAllocator, PoolExhaustedError
from hlomem.job.log import Compile, Drop, JobLog, Mark, Put, Run, Wait
from hlomem.job.owner_rows import FROM_HOST, WASTE, OwnerRow, merge_rows
from hlomem.job.plans import HOST_MEMORY
from hlomem.job.sums import SumAllocator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hlomem.job.attribution import Attribution
    from hlomem.job.log import AnyEntry
    from hlomem.job.plans import ProgramPlan

Allocator: TypeAlias = BfcAllocator | SumAllocator
STEP = 2 << 20
"""Pools are whole multiples of this many bytes."""
_FAR_MORE = 6
"""The power of two by which a smallest pool may be larger than a limit."""


class Request(NamedTuple):
    """A call of the allocator that a job will make."""

    entry: int
    """The number of the entry of the log."""
    key: int
    """The chunk."""
    size: int | None
    """Bytes asked for; None where the chunk goes back."""
    owner: str = ""
    name: str = ""
    line: str = ""


class Failure(Record, frozen=True, kw_only=True):
    """The request a pool could not serve."""

    entry: int
    words: str
    """The step of the job, in words."""
    size: int
    in_use: int
    largest_free: int
    """The largest block that could be had, growth included."""


class Forecast(Record, frozen=True, kw_only=True):
    """A job's memory."""

    name: str
    limit: int
    grows: bool
    is_summed: bool
    """Whether only sums are known, as the platform's allocator is not."""
    peak: int
    peak_at: str
    """The step of the job then, in words."""
    rows: tuple[OwnerRow, ...]
    """The owners of the peak; with the waste of chunks they add up to it."""
    pool: int
    """Bytes taken from the device in the end."""
    largest_free: int
    failure: Failure | None
    smallest_pool: int | None
    """The smallest pool, taken at once, in which the job runs, once its programs are compiled;
    None where that is more than 64 times the limit."""
    runs: int
    requests: int
    modelled: tuple[str, ...]
    """Parts of this that are a model, and not XLA's own plan."""
    notes: tuple[str, ...]


class JobRequests(NamedTuple):
    """The requests of a job, however they are known."""

    name: str
    requests: list[Request]
    words: Callable[[int], str]
    """The step of the job at an entry, in words."""
    runs: int
    modelled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_summed: bool = False
    """Whether the platform's allocator is not known: sums stand for it."""

    def allocator(self, limit: int, grows: bool) -> Allocator:
        """The pool the job runs in."""
        return SumAllocator(limit) if self.is_summed else BfcAllocator(limit, grows=grows)

    def curve(self, limit: int) -> Iterator[tuple[int, int]]:
        """Bytes in use after each request that is served, with the number of its entry."""
        pool = self.allocator(limit, grows=True)
        for request in _served(self.requests, pool):
            yield request.entry, pool.in_use


def forecast(job: JobRequests, limit: int, *, grows: bool = True) -> Forecast:
    """The memory of a job in a pool."""
    pool = job.allocator(limit, grows)
    served = peak = top = 0
    for _ in _served(job.requests, pool):
        served += 1
        if pool.peak > peak:
            peak, top = pool.peak, served
    failed = job.requests[served] if served < len(job.requests) else None
    at = job.requests[top - 1].entry if top else 0
    return Forecast(
        name=job.name,
        limit=limit,
        grows=grows,
        is_summed=job.is_summed,
        peak=peak,
        peak_at=job.words(at),
        rows=_rows(job.requests[:top], peak),
        pool=pool.pool,
        largest_free=pool.largest_free,
        failure=None if failed is None else _failure(job, failed, pool),
        smallest_pool=smallest_pool(
            job._replace(requests=without_tuner(job.requests)), limit << _FAR_MORE
        ),
        runs=job.runs,
        requests=sum(one.size is not None for one in job.requests),
        modelled=job.modelled,
        notes=job.notes,
    )


def _rows(requests: Sequence[Request], peak: int) -> tuple[OwnerRow, ...]:
    """The owners of a peak, which the last request made; the waste of chunks is a row."""
    held: dict[int, Request] = {}
    for one in requests:
        if one.size is None:
            held.pop(one.key, None)
        else:
            held[one.key] = one
    rows = [
        OwnerRow(size=one.size or 0, owner=one.owner, name=one.name, line=one.line)
        for one in held.values()
    ]
    if waste := peak - sum(row.size for row in rows):
        rows.append(OwnerRow(size=waste, count=len(rows), owner=WASTE))
    return merge_rows(rows)


def _failure(job: JobRequests, request: Request, pool: Allocator) -> Failure:
    return Failure(
        entry=request.entry,
        words=job.words(request.entry),
        size=request.size or 0,
        in_use=pool.in_use,
        largest_free=pool.largest_possible,
    )


# From a log to requests


def requests_of_log(log: JobLog, *, tunes: bool = True) -> JobRequests:
    """Every call of the allocator a job will make, by its log and the plans of its programs."""
    return JobRequests(
        name=log.name,
        requests=list(_Requests(log, tunes).walk()),
        words=partial(describe, log),
        runs=sum(isinstance(entry, Run) for entry in log.entries),
        modelled=tuple(_modelled(log, tunes)),
        notes=log.notes,
        is_summed=not log.has_bfc,
    )


def requests_of_calls(name: str, found: Attribution) -> JobRequests:
    """Every call an allocator served while a job was traced; older memory is not among them."""
    requests = []
    for number, holding in enumerate(found.holdings):
        if holding.start is not None:
            owner, who = holding.owner, holding.name
            asked = Request(holding.start, number, holding.asked, owner, who, holding.function)
            requests.append(asked)
            if holding.end is not None:
                requests.append(Request(holding.end, number, None))
    requests.sort(key=lambda request: request.entry)
    notes: tuple[str, ...] = ()
    if found.older:
        size = format_bytes(found.older)
        notes = (f"{size} were in use before the trace began and are not in these figures",)
    runs = {(call.cause.name, call.cause.run) for call in found.calls if call.cause.run is not None}
    return JobRequests(name, requests, partial(_describe_call, found), len(runs), (), notes)


def _describe_call(found: Attribution, number: int) -> str:
    call = found.calls[min(number, len(found.calls) - 1)]
    what = {"program": "a run of", "tuning": "tuning", "host": "putting"}.get(call.cause.kind, "")
    return f"{what} {call.cause.name} at {call.time / 10**12:.3f} s".strip()


class _Requests:
    """A walk over a log that keeps which array lies in which chunk."""

    def __init__(self, log: JobLog, tunes: bool) -> None:
        self._log = log
        self._tunes = tunes
        self._keys = 0
        self._chunk: dict[int, int | None] = {}
        """By array."""
        self._from_host: set[int] = set()
        self._in_flight: set[int] = set()
        """Arrays from the host that a run may still read."""
        self._late: list[int] = []
        """Chunks to give back when the device is done."""
        self._laid_out = _laid_out_sizes(log)

    def walk(self) -> Iterator[Request]:
        for number, entry in enumerate(self._log.entries):
            if isinstance(entry, Put):
                size = self._laid_out.get(entry.array, entry.size)
                yield self._ask(number, entry.array, size, FROM_HOST, entry.shape, entry.line)
                self._from_host.add(entry.array)
            elif isinstance(entry, Compile) and self._tunes:
                yield from self._tune(number, self._log.programs[entry.program])
            elif isinstance(entry, Run):
                yield from self._run(number, entry)
            elif isinstance(entry, Drop):
                yield from self._drop(number, entry.array)
            elif isinstance(entry, Wait):
                yield from self._wait(number)

    def _new_key(self) -> int:
        self._keys += 1
        return self._keys

    def _ask(self, number: int, array: int, size: int, owner: str, name: str, line: str) -> Request:
        key = self._new_key()
        self._chunk[array] = key
        return Request(number, key, size, owner, name, line)

    def _tune(self, number: int, program: ProgramPlan) -> Iterator[Request]:
        for instruction in program.tuned:
            for key, size in tuning.requests_of(instruction, self._new_key):
                yield Request(number, key, size, TUNER, instruction.name)

    def _run(self, number: int, entry: Run) -> Iterator[Request]:
        program = self._log.programs[entry.program]
        places: dict[int, int] = {}
        back = []
        for request in program.requests:
            if request.color == HOST_MEMORY:
                continue
            key = places[request.index] = self._new_key()
            yield Request(number, key, request.size, request.role, entry.program, entry.line)
            if request.role != "result":
                back.append(key)
        for key in back:
            yield Request(number, key, None)
        self._in_flight.update(self._from_host.intersection(entry.arguments))
        yield from self._hand_over(number, entry, program, places)

    def _hand_over(
        self, number: int, entry: Run, program: ProgramPlan, places: dict[int, int]
    ) -> Iterator[Request]:
        """Give each result its chunk, and back what no result took."""
        given = {
            program.donated[parameter]: self._chunk.get(array)
            for parameter, array in enumerate(entry.arguments)
            if array in entry.donated and parameter in program.donated
        }
        sizes = {request.index: request.size for request in program.requests}
        free = {
            key: sizes[index]
            for index, key in places.items()
            if any(one.index == index and one.role == "result" for one in program.requests)
        }
        taken: set[int] = set()
        for order, result in enumerate(entry.results):
            place = program.results[order] if order < len(program.results) else None
            key = places.get(place, given.get(place)) if place is not None else None
            if key is None:
                key = next(
                    (k for k, s in free.items() if s == result.size and k not in taken), None
                )
            if key is not None:
                taken.add(key)
            self._chunk[result.array] = key
        for array in entry.donated:
            key = self._chunk.pop(array, None)
            if key is not None and key not in taken:
                yield Request(number, key, None)
        for key in free:
            if key not in taken:
                yield Request(number, key, None)

    def _drop(self, number: int, array: int) -> Iterator[Request]:
        key = self._chunk.pop(array, None)
        if key is None:
            return
        if array in self._in_flight:
            self._late.append(key)
        else:
            yield Request(number, key, None)

    def _wait(self, number: int) -> Iterator[Request]:
        for key in self._late:
            yield Request(number, key, None)
        self._late, self._in_flight = [], set()


def _laid_out_sizes(log: JobLog) -> dict[int, int]:
    """Bytes of arrays with their padding, by the first program that takes them."""
    found: dict[int, int] = {}
    for entry in log.entries:
        if isinstance(entry, Run):
            sizes = log.programs[entry.program].arguments
            for parameter, array in enumerate(entry.arguments):
                if parameter in sizes:
                    found.setdefault(array, sizes[parameter])
    return found


def describe(log: JobLog, number: int) -> str:
    """An entry of a log in words."""
    if not log.entries:
        return ""
    entry: AnyEntry = log.entries[min(number, len(log.entries) - 1)]
    last = [one.name for one in log.entries[:number] if isinstance(one, Mark)][-1:]
    after = f", after `{last[0]}`" if last else ""
    if isinstance(entry, Run):
        nth = sum(
            isinstance(one, Run) and one.program == entry.program
            for one in log.entries[: number + 1]
        )
        return f"run {nth} of {entry.program}{after}"
    if isinstance(entry, Compile):
        return f"compiling {entry.program}{after}"
    if isinstance(entry, Put):
        return f"putting {entry.shape or 'an array'} on the device{after}"
    return f"entry {number}{after}"


# Pools


def without_tuner(requests: Sequence[Request]) -> list[Request]:
    """The requests of a job whose programs come from a cache."""
    tuned = {request.key for request in requests if request.owner == TUNER}
    return [request for request in requests if request.key not in tuned]


def _served(requests: Iterable[Request], allocator: Allocator) -> Iterator[Request]:
    """The requests an allocator serves, up to the first that it cannot."""
    held: dict[int, int | None] = {}
    for request in requests:
        if request.size is None:
            allocator.free(held.pop(request.key, None))
        else:
            try:
                held[request.key] = allocator.allocate(request.size)
            except PoolExhaustedError:
                return
        yield request


def pool_for(requests: Sequence[Request], allocator: Allocator) -> int | None:
    """The pool after all requests; None where one is not served."""
    served = sum(1 for _ in _served(requests, allocator))
    return allocator.pool if served == len(requests) else None


def smallest_pool(job: JobRequests, most: int) -> int | None:
    """The smallest pool, in steps of 2 MiB, that serves all; None where `most` does not."""

    def runs_in(steps: int) -> bool:
        return pool_for(job.requests, job.allocator(steps * STEP, grows=False)) is not None

    low, high = 0, -(-most // STEP)
    if not runs_in(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if runs_in(middle):
            high = middle
        else:
            low = middle
    return high * STEP


def _modelled(log: JobLog, tunes: bool) -> Iterator[str]:
    tuned = sum(len(program.tuned) for program in log.programs.values())
    if tunes and tuned:
        yield f"the autotuner's memory for {tuned} instructions (hlomem.job.tuning)"
    if any(isinstance(entry, Put) for entry in log.entries):
        yield "arrays from the host are held until the next wait once a run has read them"
    if not log.has_bfc:
        yield (
            f"the allocator of {log.platform.upper()}: sums of arrays and plans stand for it"
            " (hlomem.job.sums)"
        )
