"""Timelines and plans in the formats of other tools: Perfetto's trace events, pprof's profiles.

In: a timeline of a job or the memory of a program. Out: the bytes of a file. Perfetto and Chrome
open trace events (JSON): bytes in use as counters, runs of programs as slices; of a program, one
microsecond stands for one instruction, of a forecast for one entry of its log. pprof and Speedscope
open the other: the bytes at the peak by stack, which is owner, program, line for a job.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from hlomem.proto.schema import message_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.job.attribution import Attribution
    from hlomem.job.events import Execution
    from hlomem.job.forecast import JobRequests
    from hlomem.job.owner_rows import OwnerRow
    from hlomem.report.data.memory import MemoryView, Space

_MICROSECOND = 10**6
"""Picoseconds."""
_MOST_SLICES = 2000
"""Buffers of a program that are drawn, the largest."""


# Perfetto


def perfetto_of_timeline(found: Attribution, executions: Sequence[Execution]) -> bytes:
    """Bytes in use, by owner, and the runs of programs, over the time of a trace."""
    return _trace([*_counters(found), *_runs(executions)])


def _counters(found: Attribution) -> Iterator[dict[str, Any]]:
    owners = sorted({holding.owner for holding in found.holdings})
    sums = dict.fromkeys(owners, 0)
    starts: dict[int, str] = {}
    ends: dict[int, str] = {}
    for holding in found.holdings:
        if holding.start is not None:
            starts[holding.start] = holding.owner
        else:
            sums[holding.owner] += holding.size
        if holding.end is not None:
            ends[holding.end] = holding.owner
    for number, call in enumerate(found.calls):
        owner = (ends if call.is_free else starts).get(number)
        if owner is not None:
            sums[owner] += -call.size if call.is_free else call.size
        time = call.time / _MICROSECOND
        yield _counter(f"{found.allocator}: in use", time, {"bytes": call.in_use})
        yield _counter(f"{found.allocator}: by owner", time, dict(sums))


def _runs(executions: Sequence[Execution]) -> Iterator[dict[str, Any]]:
    for run in executions:
        yield {
            "ph": "X",
            "name": run.program,
            "pid": 1,
            "tid": 1,
            "ts": run.start / _MICROSECOND,
            "dur": (run.end - run.start) / _MICROSECOND,
            "args": {} if run.run is None else {"run": run.run},
        }


def perfetto_of_forecast(job: JobRequests, limit: int) -> bytes:
    """Bytes in use after each request of a job that has not run; a microsecond is an entry."""
    return _trace(
        [_counter("in use", float(entry), {"bytes": size}) for entry, size in job.curve(limit)]
    )


def perfetto_of_memory(memory: MemoryView, space: Space) -> bytes:
    """Bytes alive at each step of a program, and its largest buffers as slices."""
    timeline = memory.timeline(space.color)
    events: list[dict[str, Any]] = []
    for step, size in enumerate(timeline.sizes if timeline else ()):
        events.append(_counter(f"{space.name}: alive", float(step), {"bytes": size}))
    here = [buffer for buffer in memory.buffers if buffer.color == space.color]
    here.sort(key=lambda buffer: (-buffer.size, buffer.id))
    for buffer in here[:_MOST_SLICES]:
        if buffer.start is None or buffer.end is None:
            continue
        about = {"bytes": buffer.size, "role": buffer.role, "line": buffer.source or ""}
        common = {"cat": "buffer", "id": int(buffer.id), "pid": 1, "tid": 1, "name": buffer.name}
        events.append({"ph": "b", "ts": int(buffer.start), "args": about, **common})
        events.append({"ph": "e", "ts": int(buffer.end) + 1, **common})
    return _trace(events)


def _counter(name: str, time: float, values: dict[str, int]) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": 1, "ts": time, "args": values}


def _trace(events: list[dict[str, Any]]) -> bytes:
    names = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "device memory"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "programs"}},
    ]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": [*names, *events]}).encode()


# pprof


def pprof_of_rows(rows: Iterable[OwnerRow]) -> bytes:
    """The owners of the bytes of a moment: owner, program, line."""
    return _Pprof().pack(
        (row.count, row.size, [frame for frame in (row.line, row.name, row.owner) if frame])
        for row in rows
    )


def pprof_of_memory(memory: MemoryView, space: Space) -> bytes:
    """The bytes alive at a program's peak, by the calls that led to them."""
    timeline = memory.timeline(space.color)
    alive = memory.alive(space.color, timeline.peak.step) if timeline else []
    return _Pprof().pack(
        (
            1,
            part.size,
            [frame.location for frame in memory.frames(part.buffer)] or [part.buffer.name],
        )
        for part in alive
    )


class _Pprof:
    """A profile of `google/pprof` while it is made."""

    def __init__(self) -> None:
        self._message: Any = message_types()["Pprof"]()
        self._texts: dict[str, int] = {}
        self._locations: dict[str, int] = {}
        self._text("")

    def pack(self, samples: Iterable[tuple[int, int, list[str]]]) -> bytes:
        """The bytes of a profile of counts, sizes and stacks, the innermost call first."""
        message = self._message
        for kind, unit in (("allocations", "count"), ("space", "bytes")):
            message.sample_type.add(type=self._text(kind), unit=self._text(unit))
        for count, size, stack in samples:
            locations = [self._location(frame) for frame in stack]
            message.sample.add(location_id=locations, value=[count, size])
        message.default_sample_type = self._text("space")
        return gzip.compress(message.SerializeToString(), mtime=0)

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts)
            self._message.string_table.append(text.encode("utf-8", "replace"))
        return self._texts[text]

    def _location(self, frame: str) -> int:
        """The location of a frame: `file:line`, or a name."""
        if frame not in self._locations:
            number = self._locations[frame] = len(self._locations) + 1
            file, _, line = frame.rpartition(":")
            is_line = bool(file) and line.isdecimal()
            function = self._message.function.add(id=number, name=self._text(frame))
            function.filename = self._text(file if is_line else "")
            location = self._message.location.add(id=number)
            location.line.add(function_id=number, line=int(line) if is_line else 0)
        return self._locations[frame]
