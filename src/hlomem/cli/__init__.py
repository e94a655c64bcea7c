"""The command line: which commands there are, and how an error becomes an exit code.

A command's module is imported when it is called, so that `hlomem --help` needs nothing but click.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from hlomem import __version__
from hlomem.errors import EXIT_INTERNAL, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE, HlomemError
from hlomem.source import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

COMMANDS = {
    "advise": "Show what would make a program need less memory, by how much, and at what cost.",
    "copies": "Show copies that cost memory, and why each is made.",
    "diff": "Show what changed in memory between two compiles of one program.",
    "donate": "Show which arguments give their memory to results, and which could.",
    "explain": "Explain one buffer: why it exists, its size, its life, its place.",
    "fmt": "Read files XLA wrote and print them back, byte for byte.",
    "holes": "Show memory that is reserved for temporaries but never filled.",
    "oom": "Explain an out-of-memory message of XLA, from a log or pasted.",
    "padding": "Show which arrays are larger in memory than their elements.",
    "peak": "Show who is alive when the program needs most memory.",
    "plan": "Plan a module's memory as XLA does, and write the same dumps.",
    "replan": "Plan a dump's program anew, without its HLO module.",
    "show": "Show a memory dump, or an HLO module, in one screen.",
    "summary": "Show in one screen what a program's memory is for.",
    "verify": "Check that a memory plan is right, XLA's or ours.",
}
"""Every command with its one-line help, which is also the first line of its own."""


class _Commands(click.Group):
    """Commands that live in a module of their name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"hlomem.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="hlomem %(version)s")
def commands() -> None:
    """Memory plans of XLA programs: read, shown and explained.

    Dumps come from XLA_FLAGS="--xla_dump_to=DIR --xla_dump_hlo_as_text".

    Exit codes: 0 fine, 1 a finding, 2 wrong usage, 3 unreadable input, 4 a bug of hlomem's own.
    """


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
        with commands.make_context("hlomem", words) as context:
            result = commands.invoke(context)
        sys.stdout.flush()
        code = result if isinstance(result, int) else EXIT_OK
        return code if arguments is not None else _leave(code)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except HlomemError as error:
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has gone; keep the interpreter from flushing into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except MemoryError:
        return _fail("not enough memory for this input", EXIT_UNREADABLE)
    except Exception as error:  # noqa: BLE001 - the last resort: a bug of ours, said without a traceback
        return _fail(_bug_report(error), EXIT_INTERNAL)


def _leave(code: int) -> NoReturn:
    """End the process at once: to free a large plan piece by piece takes as long as to print it.

    Whatever a command hung on its context is still there.
    """
    sys.stderr.flush()
    os._exit(code)


def _fail(message: str, code: int) -> int:
    click.echo(f"error: {message}", err=True)
    return code


def _bug_report(error: Exception) -> str:
    import traceback  # noqa: PLC0415 - takes as long to import as half of click

    place = traceback.extract_tb(error.__traceback__)[-1]
    what = visible(f"{type(error).__name__}: {error}")
    return (
        f"this is a bug of hlomem {__version__}: {what}\n"
        f"  in {place.name}, {Path(place.filename).name}:{place.lineno}\n"
        "  please report it with this message and the input that caused it"
    )
