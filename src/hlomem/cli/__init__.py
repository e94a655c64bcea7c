"""The command line: which commands there are, and how an error becomes an exit code.

A command's module is imported when it is called, so that `hlomem --help` needs nothing but click,
and commands that do without click (`hlomem.cli.parameters`) nothing but what they do.
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
from hlomem.report.registry import REPORTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.cli.parameters import Command

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

TRACEBACK = "HLOMEM_TRACEBACK"
"""The environment variable that asks for the traceback of a bug."""

COMMAND_GROUPS = {
    "Understand a program's memory": {
        "summary": "Show in one screen what a program's memory is for.",
        "peak": "Show who is alive when the program needs most memory.",
        "explain": "Explain one buffer: why it exists, its size, its life, its place.",
        "html": "Write the memory report as one page that opens offline.",
        "run": "Run a command with XLA's dumps on, and show what its programs need.",
        "oom": "Explain an out-of-memory message of XLA, from a log or pasted.",
        "diff": "Show what changed in memory between two compiles of one program.",
        "compile": "Compile a function for a machine that is not here, and show its memory.",
        "show": "Show a memory dump, or an HLO module, in one screen.",
    },
    "Use less": {
        "fit": "Find the largest batch that fits, by XLA's own plans.",
        "scale": "Plan a program at sizes nobody compiled, from two compiles of it.",
        "improve": "Show what a better order of instructions would save, and write it.",
        "advise": "Show what would make a program need less memory, by how much, and at what cost.",
        **{name: report.help.partition("\n")[0] for name, report in REPORTS.items()},
    },
    "Look at many programs": {
        "scan": "Scan many programs into a store, which `ask` and `html` read.",
        "ask": "Ask a store of `scan` about all its programs at once.",
    },
    "Set up": {
        "doctor": "Show what is installed here, what can be compiled for, and where dumps are.",
        "completion": "Print the script that makes a shell complete commands and options.",
    },
    "Work on XLA": {
        "plan": "Plan a module's memory as XLA does, and write the same dumps.",
        "replan": "Plan a dump's program anew, without its HLO module.",
        "verify": "Check that a memory plan is right, XLA's or ours.",
        "pack": "Find the smallest heap for buffers that live at times, and prove it.",
        "fmt": "Read files XLA wrote and print them back, byte for byte.",
    },
}
"""Commands by what people want; those that are no report have a module of their name."""
_LEAN = {"plan", "summary", "verify"}
"""Those that do without click where they can."""
COMMANDS = {name: help_ for group in COMMAND_GROUPS.values() for name, help_ in group.items()}
"""Every command with its one-line help, which is also the first line of its own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code; no exception leaves it.

    Without arguments it is that of the process, which ends here if all goes well.
    """
    if arguments is None:
        words = sys.argv[1:]
        gc.disable()  # a process of its own ends before its garbage matters
    else:
        words = list(arguments)
    try:
        result = _run_plainly(words)
        if result is None:
            from hlomem.cli.group import run  # noqa: PLC0415 - takes as long as a small plan

            result = run(words)
        sys.stdout.flush()
        return result if arguments is not None else _leave(result)
    except BaseException as error:  # noqa: BLE001 - every end has its code
        _drop_output()
        return _explain(error)
    finally:
        forget()


def _run_plainly(words: list[str]) -> int | None:
    """Runs a command that needs no click for these words; None for any other."""
    if not words or words[0] not in _LEAN:
        return None
    command: Command = import_module(f"hlomem.cli.{words[0]}").command
    arguments = command.read(words[1:])
    return None if arguments is None else command.run(**arguments)


def _explain(error: BaseException) -> int:
    """Says what went wrong and returns the exit code for it."""
    match error:
        case KeyboardInterrupt():
            return EXIT_INTERRUPTED
        case BrokenPipeError():  # whoever read us has gone
            return EXIT_BROKEN_PIPE
        case HlomemError():
            say(f"error: {error}")
            return error.exit_code
        case MemoryError():
            say("error: not enough memory for this input")
            return EXIT_UNREADABLE
        case RecursionError():
            say("error: the input nests deeper than hlomem can follow")
            return EXIT_UNREADABLE
        case OSError():
            say(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
            return EXIT_UNREADABLE
    say(f"error: {_bug_report(error)}")
    return EXIT_INTERNAL


def _drop_output() -> None:
    """Keep the interpreter from flushing into a pipe that is closed or a disk that is full."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(code: int) -> NoReturn:
    """End the process at once: to free a large plan piece by piece takes as long as to print it.

    Whatever a command hung on its context is still there.
    """
    sys.stderr.flush()
    os._exit(code)


def _bug_report(error: BaseException) -> str:
    import traceback  # noqa: PLC0415 - takes as long to import as half of click
    from pathlib import Path  # noqa: PLC0415

    place = traceback.extract_tb(error.__traceback__)[-1]
    report = (
        f"this is a bug of hlomem {__version__}: {visible(f'{type(error).__name__}: {error}')}\n"
        f"  in {place.name}, {Path(place.filename).name}:{place.lineno}\n"
        "  please report it with this message and the input that caused it (SECURITY.md says how)\n"
    )
    if os.environ.get(TRACEBACK):
        return report + "".join(traceback.format_exception(error)).rstrip("\n")
    return report + f"  {TRACEBACK}=1 shows where it happened"
