"""The processes that compile: one of its own for a job, or a fork of one that has imported already.

A fork server imports a factory once and forks for every job, which spares imports: most of the time
of a plan where a stack is large. It forks only while it has one thread, so that a fork is whole.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from hlomem.base.errors import HlomemError
from hlomem.jax.compile.messages import Errand  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PACKAGE_HOME = str(Path(__file__).parents[3])
_OWN = "import sys; sys.path[:0] = sys.argv[1:]; from hlomem.jax.compile.child import main; main()"
_SERVER = (
    "import sys; sys.path[:0] = sys.argv[1:2];"
    " from hlomem.jax.compile.fork_server import main; main(int(sys.argv[2]))"
)
_INTERVAL = 0.01
_IMPORT_SECONDS = 600.0
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Keeps libraries from starting threads as they are imported."""


class Ended(NamedTuple):
    """A process that has ended."""

    code: int
    """Its exit code, or a signal, negative."""
    cpu_seconds: float


class Process(Protocol):
    """A running compile."""

    @property
    def pid(self) -> int:
        """Also of its process group."""

    def ended(self, *, waits: bool) -> Ended | None:
        """Its end; None while it runs."""

    def close(self) -> None:
        """Let go of it once it has ended."""


Start: TypeAlias = "Callable[[Errand, Path, Mapping[str, str]], Process]"
Answer = TypeVar("Answer")


class OwnProcess:
    """A process for one job."""

    def __init__(self, errand: Errand, output: Path, environment: Mapping[str, str]) -> None:
        with output.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603 - Python itself
                [sys.executable, "-P", "-c", _OWN, _PACKAGE_HOME],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                process_group=0,
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it may have died already, which is found later
            self._process.stdin.write(msgspec.json.encode(errand) + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self, *, waits: bool) -> Ended | None:
        pid, status, usage = os.wait4(self._process.pid, 0 if waits else os.WNOHANG)
        if not pid:
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return Ended(self._process.returncode, usage.ru_utime + usage.ru_stime)

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


class Preparation(Struct, frozen=True, kw_only=True):
    """The factory whose module a server imports before it forks."""

    factory: str
    path: list[str]


class ForkOrder(Struct, frozen=True, kw_only=True):
    """A job for a fork."""

    errand: Errand
    output: str
    environment: dict[str, str]


class Prepared(Struct, frozen=True, kw_only=True):
    """The state of a server after its imports, and their CPU time."""

    can_fork: bool
    cpu_seconds: float


class ForkedEnd(Struct, frozen=True, kw_only=True):
    """The end of a fork, as its server saw it."""

    code: int
    cpu_seconds: float


class ServerLostError(HlomemError):
    """A fork server that cannot be used; a process of its own can."""


class ForkServer:
    """A process that has imported a factory, and forks for one job after the other."""

    def __init__(
        self,
        preparation: Preparation,
        environment: Mapping[str, str],
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        read, write = os.pipe()
        self._answers = read
        self._buffer = b""
        self._process = subprocess.Popen(  # noqa: S603 - Python itself
            [sys.executable, "-P", "-c", _SERVER, _PACKAGE_HOME, str(write)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**_ONE_THREAD, **environment},
            pass_fds=(write,),
            process_group=0,
        )
        os.close(write)
        os.set_blocking(read, False)
        self.spare_seconds = 0.0
        """CPU time of the imports, for the first job to count."""
        try:
            self._send(preparation)
            prepared = self._wait(Prepared, _IMPORT_SECONDS, on_wait)
        except BaseException:
            self.end()
            raise
        self.spare_seconds = prepared.cpu_seconds
        if not prepared.can_fork:
            self.end()
            raise ServerLostError("its factory starts threads when it is imported")

    def start(self, errand: Errand, output: Path, environment: Mapping[str, str]) -> ForkedProcess:
        """A fork that does a job; there is one at a time."""
        self._send(ForkOrder(errand=errand, output=str(output), environment=dict(environment)))
        return ForkedProcess(self, self._wait(int, 30.0))

    def answer(self, *, waits: bool) -> ForkedEnd | None:
        """How the fork ended, if it has."""
        if waits:
            return self._wait(ForkedEnd, 30.0)
        line = self._line()
        return None if line is None else msgspec.json.decode(line, type=ForkedEnd)

    def end(self) -> None:
        """End the server and what it has forked."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1

    def _send(self, message: Struct) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise ServerLostError("the fork server died") from error

    def _wait(
        self, kind: type[Answer], seconds: float, on_wait: Callable[[], None] = lambda: None
    ) -> Answer:
        until = time.monotonic() + seconds
        while (line := self._line()) is None:
            on_wait()
            if time.monotonic() > until or self._process.poll() is not None:
                raise ServerLostError("the fork server does not answer")
            time.sleep(_INTERVAL)
        return msgspec.json.decode(line, type=kind)

    def _line(self) -> bytes | None:
        """The next line of its answers; None while there is not one."""
        if b"\n" not in self._buffer:
            with suppress(BlockingIOError):
                self._buffer += os.read(self._answers, 1 << 16)
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        return line


class ForkedProcess:
    """A job's process that a server has forked."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def ended(self, *, waits: bool) -> Ended | None:
        found = self._server.answer(waits=waits)
        if found is None:
            return None
        imports, self._server.spare_seconds = self._server.spare_seconds, 0.0
        return Ended(found.code, found.cpu_seconds + imports)

    def close(self) -> None:
        """Nothing is left: the server has waited for it."""
