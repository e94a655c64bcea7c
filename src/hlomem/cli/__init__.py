"""The command line: runs a command and turns errors into exit codes.

A command's module is imported when it is called, so that `hlomem --help` needs only click, and
commands that do without click (`hlomem.cli.parameters`) not even that.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from hlomem import __version__
from hlomem.base.errors import EXIT_INTERNAL, EXIT_UNREADABLE, HlomemError
from hlomem.base.source import visible
from hlomem.cli.process import forget, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.cli.parameters import Command

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

TRACEBACK = "HLOMEM_TRACEBACK"
"""The environment variable that requests tracebacks of bugs."""

_LEAN = {"plan", "summary", "verify"}
"""Commands that avoid click if possible."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default the process's, which ends here on success; never raises."""
    if arguments is None:
        words = sys.argv[1:]
        gc.disable()  # the process ends before its garbage matters
    else:
        words = list(arguments)
    _open_closed_streams()
    try:
        result = _run_plainly(words)
        if result is None:
            from hlomem.cli.group import run  # noqa: PLC0415 - takes as long as a small plan

            result = run(words)
        sys.stdout.flush()
        return result if arguments is not None else _leave(result)
    except BaseException as error:  # noqa: BLE001 - every error has an exit code
        _drop_output()
        return _explain(error)
    finally:
        forget()


def _open_closed_streams() -> None:
    """Standard streams that the process was started without read and write nothing."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115 - for the rest of the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115


def _run_plainly(words: list[str]) -> int | None:
    """Run a command without click; None if it needs click."""
    if not words or words[0] not in _LEAN:
        return None
    command: Command = import_module(f"hlomem.cli.{words[0]}").command
    arguments = command.read(words[1:])
    return None if arguments is None else command.run(**arguments)


def _explain(error: BaseException) -> int:
    match error:
        case KeyboardInterrupt():
            return EXIT_INTERRUPTED
        case BrokenPipeError():  # the reader has closed the pipe
            return EXIT_BROKEN_PIPE
        case HlomemError():
            say(f"error: {error}")
            return error.exit_code
        case MemoryError():
            say("error: not enough memory for this input")
            return EXIT_UNREADABLE
        case RecursionError():
            say("error: the input is nested too deeply")
            return EXIT_UNREADABLE
        case OSError():
            say(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
            return EXIT_UNREADABLE
    say(f"error: {_bug_report(error)}")
    return EXIT_INTERNAL


def _drop_output() -> None:
    """Keep the interpreter from flushing into a closed pipe or a full disk."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(code: int) -> NoReturn:
    """End the process at once: freeing a large plan takes as long as printing it."""
    sys.stderr.flush()
    os._exit(code)


def _bug_report(error: BaseException) -> str:
    import traceback  # noqa: PLC0415 - takes as long to import as half of click
    from pathlib import Path  # noqa: PLC0415

    frame = traceback.extract_tb(error.__traceback__)[-1]
    report = (
        f"this is a bug in hlomem {__version__}: {visible(f'{type(error).__name__}: {error}')}\n"
        f"  in {frame.name}, {Path(frame.filename).name}:{frame.lineno}\n"
        "  please report it with this message and the input that caused it (SECURITY.md says how)\n"
    )
    if os.environ.get(TRACEBACK):
        return report + "".join(traceback.format_exception(error)).rstrip("\n")
    return report + f"  {TRACEBACK}=1 shows where it happened"
