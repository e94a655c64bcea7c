"""The fork server of `processes.py`: it imports what a factory needs, then forks for every job."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hlomem.jax.compile.child import do_errand
from hlomem.jax.compile.factories import import_place
from hlomem.jax.compile.processes import ForkedEnd, ForkOrder, Preparation, Prepared

if TYPE_CHECKING:
    from typing import NoReturn

_INTERVAL = 0.02
_PRELOAD = "preload"
"""A function of a factory's module that imports what the factory will."""


def main(answers: int) -> None:
    """Serve standard input until its end."""
    orders = _Lines(0)
    preparation = msgspec.json.decode(orders.next() or b"", type=Preparation)
    sys.path[:] = preparation.path
    can_fork = _import_all(preparation) and _thread_count() == 1
    _say(answers, Prepared(can_fork=can_fork, cpu_seconds=time.process_time()))
    while can_fork and (line := orders.next()) is not None:
        order = msgspec.json.decode(line, type=ForkOrder)
        pid = os.fork()
        if not pid:
            _work(order, answers)
        with suppress(OSError):  # it may have done so itself, or have ended
            os.setpgid(pid, pid)
        _say(answers, pid)
        _say(answers, _wait_for(pid, order.errand.folder))


def _import_all(preparation: Preparation) -> bool:
    """Whether all could be imported; an error is told by the job that runs into it."""
    try:
        import_module("jax")
        module = import_place(preparation.factory.rpartition(":")[0])
        getattr(module, _PRELOAD, lambda: None)()
    except Exception:  # noqa: BLE001 - whatever it is
        return False
    return True


def _thread_count() -> int:
    """Threads of this process, those of libraries included."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else 1 + threading.active_count()


def _work(order: ForkOrder, answers: int) -> NoReturn:
    """Do a job, in a fork, and end."""
    with suppress(OSError):
        os.setpgid(0, 0)
    os.close(answers)
    output = os.open(order.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(order.environment)
    do_errand(order.errand)


def _wait_for(pid: int, folder: str) -> ForkedEnd:
    """The end of a fork, which ends with standard input, too; then nothing of it is left."""
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return ForkedEnd(code=code, cpu_seconds=usage.ru_utime + usage.ru_stime)
        if _has_ended(0):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_INTERVAL)


def _has_ended(descriptor: int) -> bool:
    """Whether a pipe is closed; orders come one at a time, so that nothing else can be in it."""
    ready, _, _ = select.select([descriptor], [], [], 0)
    return bool(ready)


def _say(answers: int, message: Any) -> None:
    with suppress(BrokenPipeError):
        os.write(answers, msgspec.json.encode(message) + b"\n")


class _Lines:
    """The lines of a pipe, read without taking more than there are."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""

    def next(self) -> bytes | None:
        """The next line; None at the end."""
        while b"\n" not in self._buffer:
            piece = os.read(self._descriptor, 1 << 16)
            if not piece:
                return None
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
