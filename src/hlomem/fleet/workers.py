"""Supervised worker processes, local or on Dask; a crash or timeout becomes an error row."""

from __future__ import annotations

import atexit
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.fleet.child import LENGTH
from hlomem.fleet.reading import Task, UnitOutcome, failed
from hlomem.fleet.storage import require

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 1 << 20
_START_SECONDS = 60.0
_here = threading.local()


def _search_path() -> list[str]:
    """Our import path without the current folder, which may be scanned, unless hlomem is there."""
    home = str(Path(__file__).parents[2])
    return [path for path in sys.path if path and (path == home or not _is_current(path))]


def _is_current(path: str) -> bool:
    try:
        return Path(path).samefile(".")
    except OSError:
        return False


class ChildEndedError(Exception):
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Group(set["Child"]):
    """Children that end together; none can be started afterwards."""

    is_over = False

    def end(self) -> None:
        self.is_over = True
        for child in list(self):
            child.end()


class Child:
    def __init__(self, group: Group) -> None:
        if group.is_over:
            raise ChildEndedError("crash", "the scan was ended")
        self._group = group
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(_search_path()))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "hlomem.fleet.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        group.add(self)
        self._receive(time.monotonic() + _START_SECONDS, "did not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, task: Task) -> UnitOutcome:
        """The outcome of a unit; `ChildEndedError` if the process ends."""
        deadline = time.monotonic() + task.options.seconds
        message = msgspec.msgpack.encode(task)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(LENGTH.pack(len(message)) + message)
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None
        late = f"not done after {task.options.seconds:g} seconds, and ended"
        return msgspec.msgpack.decode(self._receive(deadline, late), type=UnitOutcome)

    def _receive(self, deadline: float, late: str) -> bytes:
        """The next message; `late` is the error message after the deadline."""
        (length,) = LENGTH.unpack(self._read(LENGTH.size, deadline, late))
        return self._read(length, deadline, late)

    def _read(self, size: int, deadline: float, late: str) -> bytes:
        assert self._process.stdout is not None
        pieces, left = list[bytes](), size
        number = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(number, selectors.EVENT_READ)
            while left:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.end()
                    raise ChildEndedError("timeout", late)
                piece = os.read(number, min(left, _PIECE))
                if not piece:
                    raise self._ended()
                pieces.append(piece)
                left -= len(piece)
        return b"".join(pieces)

    def _ended(self) -> ChildEndedError:
        code = self._process.wait()
        self.end()
        if code == -signal.SIGKILL:
            words = "its process was killed, twice, perhaps for lack of memory"
            return ChildEndedError("crash", words)
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return ChildEndedError("crash", f"its process ended with {name}, twice")

    def end(self) -> None:
        self._group.discard(self)
        self._process.kill()
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with suppress(OSError):
                pipe.close()
        self._process.wait()


_everyone = Group()
"""The children of threads outside a local pool, such as a Dask worker's."""
atexit.register(_everyone.end)


def run_task(task: Task) -> UnitOutcome:
    """The outcome of a unit, read by this thread's child; a crash gets a second attempt."""
    for attempt in range(2):
        try:
            return _ask_child(task)
        except ChildEndedError as ended:
            if attempt or ended.kind == "timeout":
                return failed(task.unit, None, str(ended), kind=ended.kind)
    raise AssertionError


def _ask_child(task: Task) -> UnitOutcome:
    child: Child | None = getattr(_here, "child", None)
    if child is None:
        child = _here.child = Child(getattr(_here, "group", _everyone))
    try:
        outcome = child.ask(task)
    except ChildEndedError:
        _here.child = None
        raise
    if outcome.ran_out:  # the next unit gets a fresh process
        child.end()
        _here.child = None
    return outcome


class WorkerPool(NamedTuple):
    executor: Executor
    width: int


@contextmanager
def open_pool(workers: int, scheduler: Any = None) -> Iterator[WorkerPool]:
    if scheduler is not None:
        with _dask_pool(scheduler) as pool:
            yield pool
        return
    group = Group()
    executor = ThreadPoolExecutor(workers, initializer=lambda: setattr(_here, "group", group))
    try:
        yield WorkerPool(executor, workers)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        group.end()


@contextmanager
def _dask_pool(scheduler: Any) -> Iterator[WorkerPool]:
    distributed = require("distributed", "a scheduler")
    where = visible(str(scheduler))
    try:
        client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise CommandError(f"no Dask scheduler at {where}: {visible(str(error))}") from error
    try:
        count = sum(client.nthreads().values())
        if not count:
            raise CommandError(f"the Dask scheduler at {where} has no workers")
        executor = client.get_executor(pure=False)
        try:
            yield WorkerPool(executor, count)
        finally:
            executor.shutdown(wait=False)
    finally:
        client.close()
