"""A command run as if nobody were between it and its caller, but that its errors are read along.

In: a command and its environment. Out: its exit code as a shell has it (128 and the number of a
signal that killed it) and the end of what it wrote to standard error. Input and output are the
caller's own; standard error passes through here, by a terminal of our own where the caller's is
one, so that the command finds one. Signals are handed on.
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
"""Bytes of standard error that are kept: an allocator's dump may be long."""
_PIECE = 1 << 16
_GRACE = 2.0
"""Seconds to wait for the rest of the output, which processes left behind may hold open."""
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_TYPED = (signal.SIGINT, signal.SIGQUIT)
"""Those that keys of a terminal send."""


class Ended(NamedTuple):
    """How a command has ended."""

    code: int
    """As a shell reports it."""
    tail: str
    """The end of its standard error."""


class CannotRunError(HlomemError):
    """A command that is not there, or is none; the exit code is a shell's."""

    def __init__(self, problem: str, exit_code: int) -> None:
        super().__init__(problem)
        self.exit_code = exit_code


def run_child(
    command: Sequence[str], environment: Mapping[str, str], inherited: Sequence[int] = ()
) -> Ended:
    """Run a command to its end; `inherited` are descriptors it gets beside the usual three."""
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
    command: Sequence[str],
    environment: Mapping[str, str],
    errors: int,
    inherited: Sequence[int],
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - the command is the user's own
            list(command), env=dict(environment), stderr=errors, pass_fds=tuple(inherited)
        )
    except FileNotFoundError as error:
        raise CannotRunError(f"{visible(command[0])}: there is no such command", 127) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CannotRunError(f"{visible(command[0])}: {reason}", 126) from error


# Standard error


def _open_errors() -> tuple[int, int]:
    """Both ends of what the command writes its errors to: a terminal where ours is one."""
    if not os.isatty(2):
        return os.pipe()
    import pty  # noqa: PLC0415 - only a terminal needs it

    reading, writing = pty.openpty()
    _copy_size(writing)
    return reading, writing


def _copy_size(terminal: int) -> None:
    """Give a terminal the size of ours."""
    with suppress(OSError):
        size = os.get_terminal_size(2)
        import termios  # noqa: PLC0415 - only a terminal needs it

        termios.tcsetwinsize(terminal, (size.lines, size.columns))


class _Tail:
    """A thread that hands errors on and keeps the last of them."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._kept = bytearray()
        self._is_heard = True
        self._thread = threading.Thread(target=self._hand_on, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until all was handed on, though not for ever."""
        self._thread.join(_GRACE)

    def text(self) -> str:
        """The end of what was written."""
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
        except OSError:  # a terminal without anybody at its other end
            return b""

    def _say(self, piece: bytes) -> None:
        """Write to our own standard error; if nobody is there, the command need not know."""
        while piece and self._is_heard:
            try:
                piece = piece[os.write(2, piece) :]
            except OSError:
                self._is_heard = False


# Signals


@contextmanager
def _forwarding() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Signals that are sent to us go to the command, which decides what comes of them.

    Gives a function that takes the command once it is there; what came before is sent then.
    """
    children: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, _: Any = None) -> None:
        if number in _TYPED and _is_typed():
            return  # the terminal has sent it to the command as well
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
    """Whether a terminal sends its interrupts to our whole group, the command included."""
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            return os.tcgetpgrp(descriptor) == os.getpgrp()
    return False
