"""`hlomem.fleet.scan`: from paths to tables, in segments, so that a killed scan continues."""

from __future__ import annotations

import os
import time
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from hlomem.api.load import max_input
from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.fleet.finding import UnitError, find_units
from hlomem.fleet.known import Held, Known
from hlomem.fleet.reading import ScanOptions, Task, UnitOutcome, encode_line, failed
from hlomem.fleet.store import Store, check_run, make_store, now
from hlomem.fleet.tables import Tables, merge_segments, write_segment
from hlomem.fleet.workers import WorkerPool, open_pool, run_task
from hlomem.machines.registry import find_chip
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hlomem.fleet.units import Unit

_MAX_PENDING = 1000
"""Units that become a segment before the time is up."""
_AHEAD = 3
_TICK = 0.2


class Progress(Struct, kw_only=True):
    store: str
    run: str
    date: str
    found: int = 0
    read: int = 0
    carried: int = 0
    """Unchanged since another run, and carried over without being read."""
    skipped: int = 0
    """Already in this run."""
    modules: int = 0
    """Programs read or carried over."""
    errors: int = 0
    """The unreadable ones among them."""
    segments: int = 0
    seconds: float = 0.0
    is_listed: bool = False

    @property
    def done(self) -> int:
        return self.read + self.carried + self.skipped

    @property
    def rate(self) -> float:
        """Units read per second."""
        return self.read / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At this rate; None while units are still searched for or nothing was read."""
        if not (self.is_listed and self.rate):
            return None
        return (self.found - self.done) / self.rate


def scan(
    paths: Sequence[str | Path],
    store: str | Path,
    *,
    run: str | None = None,
    workers: int | None = None,
    scheduler: Any = None,
    chip: str | None = None,
    verify: bool = False,
    advise: bool = False,
    seconds: float = 60.0,
    memory: int = 4 << 30,
    retry: bool = False,
    commit_every: float = 5.0,
    on_progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Read all programs below paths into a store.

    `run` names the run, by default the day. `workers` is the number of processes, by default one
    per core; `scheduler` is a Dask cluster or its address instead. `chip` is for programs without a
    plan whose text does not tell it. `verify` and `advise` fill the tables `findings` and `advice`,
    at several times the cost. A unit that exceeds `seconds` or `memory` becomes a row with an
    error; `retry` reads such units again. Results are written every `commit_every` seconds.
    """
    day = time.strftime("%Y-%m-%d", time.gmtime())
    options = ScanOptions(
        chip=find_chip(chip).name if chip else "",
        verify=verify,
        advise=advise,
        seconds=seconds,
        memory=memory,
        max_input=max_input(),
    )
    target = make_store(str(store))
    progress = Progress(store=str(store), run=check_run(run or day), date=day)
    with open_pool(workers or os.cpu_count() or 1, scheduler) as pool:
        scanner = _Scanner(target, progress, options, pool, on_progress)
        scanner.know(retry=retry)
        scanner.commit_every = commit_every
        scanner.scan([str(path) for path in paths])
    return progress


class _Scanner:
    def __init__(
        self,
        store: Store,
        progress: Progress,
        options: ScanOptions,
        pool: WorkerPool,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.commit_every = 0.0
        self._store = store
        self._progress = progress
        self._options = options
        self._pool = pool
        self._say = on_progress
        self._started = self._flushed = self._said = time.monotonic()
        self._running: dict[Future[UnitOutcome], Task] = {}
        self._parts: dict[str, list[UnitOutcome | None]] = {}
        self._archives: dict[str, int] = {}
        """The number of pending units of each archive."""
        self._waiting: dict[str, Unit] = {}
        """Archives whose units were all found."""
        self._seen: set[str] = set()
        self._lines: dict[str, list[bytes]] = {}
        self._carried: list[bytes] = []
        self._pending = 0
        self._segments: list[str] = []

    def know(self, *, retry: bool) -> None:
        self._tables = Tables(self._store)
        run, recipe = self._progress.run, self._options.recipe
        self._known = Known(self._tables, run, recipe, retry=retry)

    def scan(self, paths: Sequence[str]) -> None:
        try:
            rest: list[Iterator[Unit | UnitError]] = []
            plain = list(self._found(paths, rest))
            self._progress.is_listed = not rest
            for unit in chain(plain, self._unpacked(rest)):
                self._take(unit)
                self._work(len(self._running) >= _AHEAD * self._pool.width)
            self._progress.is_listed = True
            while self._running:
                self._work(is_full=True)
        finally:
            self._flush()
            self._tell(now=True)
        self._tidy()

    def _tidy(self) -> None:
        """Merge the segments of this scan, and remove those replaced long ago."""
        if len(self._segments) > 1:
            progress = self._progress
            merge_segments(self._store, progress.run, progress.date, self._segments)
        self._store.sweep()

    def _found(
        self, paths: Sequence[str], rest: list[Iterator[Unit | UnitError]]
    ) -> Iterator[Unit]:
        """The units that can be listed at once; `rest` gets the archives to unpack."""
        for path in paths:
            units = find_units(path, self._known.has_archive, self._options.max_input)
            for found in units:
                unit = found.unit if isinstance(found, UnitError) else found
                if unit.archive or unit.kind == "archive":
                    rest.append(chain([found], units))
                    break
                yield from self._noted(found)

    def _unpacked(self, rest: list[Iterator[Unit | UnitError]]) -> Iterator[Unit]:
        for found in chain.from_iterable(rest):
            yield from self._noted(found)

    def _noted(self, found: Unit | UnitError) -> Iterator[Unit]:
        """A unit that was not met before; one that cannot be read is done with here."""
        unit = found.unit if isinstance(found, UnitError) else found
        if unit.id in self._seen:
            return
        self._seen.add(unit.id)
        self._progress.found += isinstance(found, UnitError) or unit.kind != "archive"
        if isinstance(found, UnitError):
            self._finish(unit, failed(unit, None, str(found), kind="unreadable"))
        else:
            yield unit

    def _take(self, unit: Unit) -> None:
        """Skip a unit, carry its rows over, or read it."""
        if unit.kind == "archive":
            self._take_archive(unit)
            return
        if self._known.is_done(unit):
            self._progress.skipped += 1
        elif (held := self._known.held(unit)) is not None:
            self._carry(unit, held)
        else:
            if unit.archive:
                self._archives[unit.archive] = self._archives.get(unit.archive, 0) + 1
            self._submit(Task(unit=unit, options=self._options, known=self._known.keys(unit)))

    def _take_archive(self, archive: Unit) -> None:
        """Handle an archive whose units were all found, or that is in the store."""
        if not self._known.has_archive(archive):
            self._waiting[archive.source] = archive
            self._close_archive(archive.source)
            return
        for held in self._known.members(archive):
            self._progress.found += 1
            if held.is_of_this_run:
                self._progress.skipped += 1
            else:
                self._carry_held(held)

    def _submit(self, task: Task) -> None:
        self._running[self._pool.executor.submit(run_task, task)] = task

    def _work(self, is_full: bool) -> None:
        """Handle finished tasks; wait for one if the queue is full."""
        if self._running and (is_full or self._is_due):
            done, _ = wait(self._running, _TICK if is_full else 0, FIRST_COMPLETED)
            for future in done:
                task = self._running.pop(future)
                self._receive(task, self._result(future, task))
        is_late = time.monotonic() - self._flushed > self.commit_every
        if self._pending >= _MAX_PENDING or (self._pending and is_late):
            self._flush()
        self._tell()

    @property
    def _is_due(self) -> bool:
        return time.monotonic() - self._said > _TICK

    def _result(self, future: Future[UnitOutcome], task: Task) -> UnitOutcome:
        """The outcome of a task, even if its workers were lost."""
        try:
            return future.result()
        except CancelledError as error:
            where = "the scheduler cancelled its tasks"
            raise InputError(f"{where}; start the same scan again to continue") from error
        except Exception as error:
            if type(error).__name__ == "ClosedClientError":
                problem = "the connection to the Dask scheduler was lost"
                raise InputError(f"{problem}; start the same scan again to continue") from error
            if type(error).__name__ != "KilledWorker":
                raise
            return failed(task.unit, None, "every worker that took it was lost", kind="crash")

    def _receive(self, task: Task, outcome: UnitOutcome) -> None:
        unit = task.unit
        if unit.program is not None:
            self._receive_part(unit, outcome)
        elif task.counts:
            self._divide(task, outcome)
        elif outcome.is_known and outcome.key is not None:
            self._carry(unit, self._known.of_key(outcome.key))
            self._leave_archive(unit)
        elif outcome.key is None and unit.kind == "proto" and outcome.errors:
            self._parts[unit.id] = [outcome]
            self._submit(replace(task, counts=True))  # a single program may be the reason
        else:
            self._finish(unit, outcome)

    def _divide(self, task: Task, counted: UnitOutcome) -> None:
        """Read a file program by program after it failed as a whole."""
        if counted.errors or counted.modules < 2:
            [first] = self._parts.pop(task.unit.id)
            assert first is not None
            self._finish(task.unit, first)
            return
        self._parts[task.unit.id] = [None] * counted.modules
        for number in range(counted.modules):
            unit = replace(task.unit, program=number)
            self._submit(Task(unit=unit, options=task.options))

    def _receive_part(self, unit: Unit, outcome: UnitOutcome) -> None:
        parts = self._parts[unit.id]
        assert unit.program is not None
        parts[unit.program] = outcome
        done = [part for part in parts if part is not None]
        if len(done) < len(parts):
            return
        del self._parts[unit.id]
        names = {table for part in done for table in part.tables}
        tables = {name: b"".join(part.tables.get(name, b"") for part in done) for name in names}
        errors = sum(part.errors for part in done)
        whole = UnitOutcome(key=None, modules=len(done), errors=errors, tables=tables)
        self._finish(replace(unit, program=None), whole)

    def _finish(self, unit: Unit, outcome: UnitOutcome) -> None:
        """Keep the rows of a unit for the next segment."""
        for table, lines in outcome.tables.items():
            self._lines.setdefault(table, []).append(lines)
        self._record(unit, outcome)
        self._progress.read += 1
        self._progress.modules += outcome.modules
        self._progress.errors += outcome.errors
        self._leave_archive(unit)

    def _record(self, unit: Unit, outcome: UnitOutcome, *, is_archive: bool = False) -> None:
        row = {
            "unit": unit.id,
            "source": unit.source,
            "archive": unit.archive or None,
            "is_archive": is_archive,
            "stamp": unit.stamp,
            "key": outcome.key,
            "names": unit.names,
            "bytes": unit.size,
            "recipe": self._options.recipe,
            "modules": outcome.modules,
            "errors": outcome.errors,
            "committed": now(),
        }
        self._lines.setdefault("units", []).append(encode_line(row))
        self._pending += 1

    def _leave_archive(self, unit: Unit) -> None:
        if unit.archive and unit.archive in self._archives:
            self._archives[unit.archive] -= 1
            self._close_archive(unit.archive)

    def _close_archive(self, path: str) -> None:
        """Record an archive once all its units are done."""
        if path in self._waiting and not self._archives.get(path):
            self._record(self._waiting.pop(path), UnitOutcome(key=None), is_archive=True)

    def _carry(self, unit: Unit, held: Held) -> None:
        about = {"source": unit.source, "place": unit.place, "archive": unit.archive or None}
        self._carry_held(replace(held, new_unit=unit.id, stamp=unit.stamp, **about))

    def _carry_held(self, held: Held) -> None:
        self._carried.append(encode_line(held.line))
        self._pending += 1
        self._progress.carried += not held.is_archive
        self._progress.modules += held.modules
        self._progress.errors += held.errors

    def _flush(self) -> None:
        if self._pending:
            progress = self._progress
            lines, carried = self._lines, self._carried
            made = write_segment(
                self._store, progress.run, progress.date, lines, carried, self._tables
            )
            self._segments.append(made.segment)
            self._lines, self._carried, self._pending = {}, [], 0
            progress.segments += 1
        self._flushed = time.monotonic()

    def _tell(self, *, now: bool = False) -> None:
        if now or self._is_due:
            self._said = time.monotonic()
            self._progress.seconds = self._said - self._started
            if self._say is not None:
                self._say(self._progress)


def describe(progress: Progress) -> str:
    parts = [plural(progress.modules, "program")]
    if progress.errors:
        parts.append(f"{progress.errors} of them with an error")
    parts.append(f"{plural(progress.read, 'input')} read")
    if progress.carried:
        parts.append(f"{progress.carried} unchanged")
    if progress.skipped:
        parts.append(f"{progress.skipped} skipped")
    return f"{visible(progress.store)}, run {progress.run}: {', '.join(parts)}"
