"""Runs a command transparently, capturing the end of its standard error.

Standard input and output are the caller's; standard error passes through here, via a pseudo
terminal if the caller's is a terminal. Signals are forwarded, and the exit code is that of a shell
(128 plus the number of a fatal signal).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import HlomemError
from hlomem.base.source import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MAX_TAIL = 4 << 20
"""Captured bytes of standard error: an allocator's dump may be long."""
_PIECE = 1 << 16
_GRACE = 2.0
"""Seconds to wait for the end of the output, which background processes may hold open."""
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_TYPED = (signal.SIGINT, signal.SIGQUIT)
"""Signals sent by keys of a terminal."""


class Ended(NamedTuple):
    code: int
    """As a shell reports it."""
    tail: str
    """The end of its standard error."""


class CannotRunError(HlomemError):
    """A command that does not exist or cannot be executed; the exit code is a shell's."""

    def __init__(self, problem: str, exit_code: int) -> None:
        super().__init__(problem)
        self.exit_code = exit_code


def run_child(
    command: Sequence[str], environment: Mapping[str, str], inherited: Sequence[int] = ()
) -> Ended:
    """Run a command to its end; `inherited` are additional file descriptors for it."""
    with _forwarding() as forward_to:
        reading, writing = _open_errors()
        try:
            child = _start(command, environment, writing, inherited)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        forward_to(child)
        tail = _Tail(reading)
        code = child.wait()
        tail.finish()
    return Ended(code if code >= 0 else 128 - code, tail.text())


def _start(
    command: Sequence[str], environment: Mapping[str, str], errors: int, inherited: Sequence[int]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - the command is the user's own
            list(command), env=dict(environment), stderr=errors, pass_fds=tuple(inherited)
        )
    except FileNotFoundError as error:
        raise CannotRunError(f"{visible(command[0])}: command not found", 127) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CannotRunError(f"{visible(command[0])}: {reason}", 126) from error


def _open_errors() -> tuple[int, int]:
    """A pipe for the command's standard error; a pseudo terminal if ours is a terminal."""
    if not os.isatty(2):
        return os.pipe()
    import pty  # noqa: PLC0415 - only for terminals

    reading, writing = pty.openpty()
    _copy_size(writing)
    return reading, writing


def _copy_size(terminal: int) -> None:
    with suppress(OSError):
        size = os.get_terminal_size(2)
        import termios  # noqa: PLC0415 - only for terminals

        termios.tcsetwinsize(terminal, (size.lines, size.columns))


class _Tail:
    """A thread that forwards standard error and keeps its end."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._kept = bytearray()
        self._is_heard = True
        self._thread = threading.Thread(target=self._hand_on, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._thread.join(_GRACE)

    def text(self) -> str:
        return bytes(self._kept).decode("utf-8", "replace").replace("\r\n", "\n")

    def _hand_on(self) -> None:
        sys.stderr.flush()
        while piece := self._read():
            self._kept += piece
            if len(self._kept) > 2 * MAX_TAIL:
                del self._kept[:-MAX_TAIL]
            self._say(piece)
        os.close(self._reading)

    def _read(self) -> bytes:
        try:
            return os.read(self._reading, _PIECE)
        except OSError:  # the other end of the terminal is closed
            return b""

    def _say(self, piece: bytes) -> None:
        """Write to our own standard error; the command does not notice if it is closed."""
        while piece and self._is_heard:
            try:
                piece = piece[os.write(2, piece) :]
            except OSError:
                self._is_heard = False


@contextmanager
def _forwarding() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Forward signals, also earlier ones, to the command passed to the yielded function."""
    children: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, _: Any = None) -> None:
        if number in _TYPED and _is_typed():
            return  # the terminal has already sent it to the command
        if not children:
            early.append(number)
        with suppress(OSError):
            for child in children:
                child.send_signal(number)

    def forward_to(child: subprocess.Popen[bytes]) -> None:
        children.append(child)
        for number in early:
            forward(number)

    before = {}
    for name in _FORWARDED:
        with suppress(AttributeError, ValueError):  # another system, or not the main thread
            number = getattr(signal, name)
            before[number] = signal.signal(number, forward)
    try:
        yield forward_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_typed() -> bool:
    """Whether the terminal sends interrupts to our process group, which includes the command."""
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            return os.tcgetpgrp(descriptor) == os.getpgrp()
    return False
