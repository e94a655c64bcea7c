"""The calls of allocators in a profile, each with what asked.

In: a profile (`hlomem.proto.profile`). Out: `Call`s in the order the allocators served them. XLA's
BFC allocator writes an event for each under its lock (bfc_allocator.cc, `AddTraceMe`), with
address, sizes and its own sums. What asked is told by the events around it on the same thread: an
execution builds its buffers in the order of its plan's allocations
(`GpuExecutableBufferAllocator::GenerateBufferAllocations`), a library asks while thunks run,
the autotuner asks on a thread of the compiler. Other allocators (`cuda_async`, `platform`) write no
events.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from math import nan
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.base.errors import InputError, OtherKindError
from hlomem.dump.records import Record
from hlomem.proto.profile import HOST, Profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.proto.profile import Plane, Thread, TimedEvent

Kind: TypeAlias = Literal["program", "library", "host", "tuning", "compiler", "copy", "other"]
_ALLOCATION, _DEALLOCATION = "MemoryAllocation", "MemoryDeallocation"
_EXECUTION = re.compile(r"\w*LoadedExecutable::Execute \((.{1,500})\)$")
_TRANSFER = re.compile(r"\w+::BufferFromHost\w*\((.{0,500})\)$")
_PYTHON = re.compile(r"\$([^\s:]{1,200}:\d{1,9}) (.{1,200})$")
_BUILD = "Build buffer allocations"
_RED_ZONES = "create redzone buffers"
_THUNKS = "GpuExecutable::ExecuteThunks"
_COMPILER_THREAD = "compile_thread_pool"
_COPIES = ("CopyToMemorySpace", "CopyToDevice", "CopyRaw", "ToLiteral", "BatchedCopy")
_STAGING = "LinearizeInto"
_ALWAYS_JAX = frozenset(
    f"{name}.py"
    for name in (
        "api", "array", "array_constructors", "array_creation", "array_methods", "compiler", "core",
        "dispatch", "einsum", "indexing", "lax", "lax_numpy", "linalg", "pjit", "prng", "profiler",
        "pxla", "random", "reductions", "stages", "traceback_util", "ufuncs", "xla_bridge",
    )
)  # fmt: skip
"""Files of JAX between a user's call and a program; a profile names files without their folders."""


class Cause(Record, frozen=True, kw_only=True):
    """The reason why memory was asked for."""

    kind: Kind
    name: str = ""
    """The program, the instruction that is tuned, the shape of an array, or XLA's event."""
    run: int | None = None
    """The number of the execution; executions of one program are told apart by it."""
    order: int = 0
    """The position among the requests of one execution."""
    function: str = ""
    """`file.py:12 train`: the innermost function of the user's, and its first line."""


class Call(Record, frozen=True, kw_only=True):
    """One event of an allocator; times are picoseconds since the trace began."""

    time: int
    allocator: str
    is_free: bool
    address: int
    asked: int
    """Bytes asked for."""
    size: int
    """Bytes of the chunk."""
    in_use: int
    """The allocator's own sum after it."""
    peak: int
    """The allocator's own maximum so far."""
    limit: int
    fragmentation: float
    cause: Cause


class Execution(Record, frozen=True, kw_only=True):
    """One run of a program, from its dispatch to the end of its launch."""

    program: str
    run: int | None
    start: int
    end: int


class Calls(NamedTuple):
    """The calls of a profile."""

    calls: tuple[Call, ...]
    executions: tuple[Execution, ...]
    notes: tuple[str, ...]
    """Caveats: what this profile cannot tell."""


def read_calls(profile: Profile) -> Calls:
    """All calls in the order of their times; `InputError` where the profile has no host events."""
    plane = profile.plane(HOST)
    if plane is None:
        raise _no_host(profile)
    calls: list[Call] = []
    executions: list[Execution] = []
    try:
        for thread in plane.threads():
            found = _ThreadReader(plane, thread)
            calls += found.calls()
            executions += found.executions
    except InputError as error:
        raise InputError(f"{profile.name}: the profile is damaged: {error}") from error
    calls.sort(key=lambda call: call.time)
    executions.sort(key=lambda run: run.start)
    return Calls(tuple(calls), tuple(executions), tuple(_notes(profile, calls)))


def _no_host(profile: Profile) -> InputError:
    if profile.is_cut:
        return InputError(f"{profile.name}: the profile is cut off before the events of the host")
    problem = "no events of the host: only its programs are here, or the host was not traced"
    return OtherKindError(f"{profile.name}: {problem}")


def _notes(profile: Profile, calls: Sequence[Call]) -> Iterator[str]:
    if profile.is_cut:
        yield "the profile is cut off: its end is missing"
    if not calls:
        yield (
            "no allocator wrote events: only XLA's BFC allocator on GPUs does, at the default"
            " tracing level; CPU, TPU and the allocators cuda_async and platform do not"
        )


class _ThreadReader:
    """The calls of one thread, with the events they are nested in."""

    def __init__(self, plane: Plane, thread: Thread) -> None:
        self._plane = plane
        self._thread = thread
        self._is_compiler = _COMPILER_THREAD in thread.name
        self._orders: dict[int, int] = {}
        self._tuned = _TunedNames(plane, thread) if self._is_compiler else None
        self.executions: list[Execution] = []

    def calls(self) -> list[Call]:
        """The calls, in their order."""
        found: list[Call] = []
        around: list[TimedEvent] = []
        for event in self._thread.events:
            while around and around[-1].end < event.start:
                around.pop()
            if event.name in (_ALLOCATION, _DEALLOCATION):
                found.append(self._call(event, around))
                continue
            if event.end > event.start:
                around.append(event)
            if (run := _EXECUTION.search(event.name)) is not None:
                self._add_execution(run[1], event)
        return found

    def _add_execution(self, program: str, event: TimedEvent) -> None:
        run = self._plane.facts(event).get("run_id")
        number = run if isinstance(run, int) else None
        self.executions.append(
            Execution(program=program, run=number, start=event.start, end=event.end)
        )

    def _call(self, event: TimedEvent, around: Sequence[TimedEvent]) -> Call:
        facts = self._plane.facts(event)

        def number(name: str) -> int:
            value = facts.get(name)
            if not isinstance(value, int):
                raise InputError(f"an event {event.name} states no {name}")
            return value

        in_use, fragmentation = number("bytes_allocated"), facts.get("fragmentation")
        return Call(
            time=event.start,
            allocator=str(facts.get("allocator_name", "")),
            is_free=event.name == _DEALLOCATION,
            address=number("addr"),
            asked=number("requested_bytes"),
            size=number("allocation_bytes"),
            in_use=in_use,
            peak=number("peak_bytes_in_use"),
            limit=in_use + number("bytes_available") + number("bytes_reserved"),
            fragmentation=float(fragmentation) if isinstance(fragmentation, int | float) else nan,
            cause=self._cause(event, around),
        )

    def _cause(self, event: TimedEvent, around: Sequence[TimedEvent]) -> Cause:
        function = _users_function(around)
        names = [outer.name for outer in around]
        for outer in reversed(around):
            if (run := _EXECUTION.search(outer.name)) is not None:
                return self._cause_in_execution(run[1], outer, around, function)
            if (transfer := _TRANSFER.search(outer.name)) is not None:
                return Cause(kind="host", name=transfer[1], function=function)
        if self._tuned is not None:
            return self._cause_in_compiler(event, names)
        if any(copy in name for name in names for copy in _COPIES):
            return Cause(kind="copy", name=names[-1], function=function)
        named = [name for name in names if not name.startswith("$")]
        return Cause(kind="other", name=named[-1] if named else "", function=function)

    def _cause_in_execution(
        self, program: str, execution: TimedEvent, around: Sequence[TimedEvent], function: str
    ) -> Cause:
        run = self._plane.facts(execution).get("run_id")
        builds = any(outer.name == _BUILD for outer in around)
        order = 0
        if builds:
            order = self._orders.get(execution.start, 0)
            self._orders[execution.start] = order + 1
        return Cause(
            kind="program" if builds else "library",
            name=program,
            run=run if isinstance(run, int) else None,
            order=order,
            function=function,
        )

    def _cause_in_compiler(self, event: TimedEvent, names: Iterable[str]) -> Cause:
        assert self._tuned is not None
        if any(name in (_RED_ZONES, _BUILD) for name in names):
            return Cause(kind="tuning", name=self._tuned.at(event.start))
        return Cause(kind="compiler", name=self._tuned.at(event.start))


class _TunedNames:
    """The instructions a thread of the compiler tunes: each run of a candidate names its own."""

    def __init__(self, plane: Plane, thread: Thread) -> None:
        runs = [event for event in thread.events if event.name.endswith(_THUNKS)]
        self._starts = [event.start for event in runs]
        self._names = [str(plane.facts(event).get("module_name", "")) for event in runs]

    def at(self, time: int) -> str:
        """The instruction whose candidate runs next."""
        place = bisect_left(self._starts, time)
        return self._names[min(place, len(self._names) - 1)] if self._names else ""


def _users_function(around: Sequence[TimedEvent]) -> str:
    """The innermost Python function before JAX's own; empty where Python was not traced."""
    last = ""
    for event in around:
        found = _PYTHON.match(event.name)
        if found is None:
            continue
        if found[1].partition(":")[0] in _ALWAYS_JAX and last:
            break
        last = f"{found[1]} {found[2]}"
    return last
