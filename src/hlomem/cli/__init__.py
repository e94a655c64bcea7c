"""The command line: which commands there are, and how an error becomes an exit code.

A command's module is imported when it is called, so that `hlomem --help` needs nothing but click.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hlomem import __version__
from hlomem.base.errors import EXIT_INTERNAL, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE, HlomemError
from hlomem.base.gc_pause import collector_off
from hlomem.base.sizes import parse_size
from hlomem.base.source import visible, visible_lines
from hlomem.report.registry import REPORTS

with collector_off():  # which would look through what an import makes, and find no garbage
    import click

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

TRACEBACK = "HLOMEM_TRACEBACK"
"""The environment variable that asks for the traceback of a bug."""

_GROUPS = {
    "Understand a program's memory": {
        "summary": "Show in one screen what a program's memory is for.",
        "peak": "Show who is alive when the program needs most memory.",
        "explain": "Explain one buffer: why it exists, its size, its life, its place.",
        "html": "Write the memory report as one page that opens offline.",
        "oom": "Explain an out-of-memory message of XLA, from a log or pasted.",
        "diff": "Show what changed in memory between two compiles of one program.",
        "show": "Show a memory dump, or an HLO module, in one screen.",
    },
    "Use less": {
        "improve": "Show what a better order of instructions would save, and write it.",
        "advise": "Show what would make a program need less memory, by how much, and at what cost.",
        **{name: report.help.partition("\n")[0] for name, report in REPORTS.items()},
    },
    "Look at many programs": {
        "scan": "Scan many programs into a store, which `ask` and `html` read.",
        "ask": "Ask a store of `scan` about all its programs at once.",
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
COMMANDS = {name: help_ for group in _GROUPS.values() for name, help_ in group.items()}
"""Every command with its one-line help, which is also the first line of its own."""


def _limit_input(context: click.Context, _: click.Parameter, size: str | None) -> None:
    if size is None:
        return
    limit = parse_size(size)
    if limit is None:
        raise click.BadParameter(f"`{size}` is not a size such as 4GiB or 500M")
    from hlomem.api.load import limited_to  # noqa: PLC0415 - help does not need it

    context.with_resource(limited_to(limit))


_MAX_INPUT = click.Option(
    ["--max-input"],
    metavar="SIZE",
    expose_value=False,
    callback=_limit_input,
    help="Refuse larger files, unpacked.  [default: 4GiB]",
)
"""An option of every command."""


class _Commands(click.Group):
    """Commands that live in a module of their name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in REPORTS:
            command = import_module("hlomem.cli.reports").build_command(cmd_name)
        else:
            command = import_module(f"hlomem.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        if _MAX_INPUT not in command.params:
            command.params.append(_MAX_INPUT)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        widest = max(map(len, COMMANDS))
        for title, group in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), help_) for name, help_ in group.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415 - only a slip needs it

            near = get_close_matches(args[0], COMMANDS, n=2, cutoff=0.6)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command '{visible(args[0])}'.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="hlomem %(version)s")
def commands() -> None:
    """Memory plans of XLA programs: read, shown and explained.

    Dumps come from XLA_FLAGS="--xla_dump_to=DIR --xla_dump_hlo_as_text".

    Exit codes: 0 fine, 1 a finding, 2 wrong usage, 3 unreadable input (or no place for the output),
    4 a bug of hlomem's own.
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
    except BaseException as error:  # noqa: BLE001 - every end has its code
        _drop_output()
        return _explain(error)


def _explain(error: BaseException) -> int:
    """Says what went wrong and returns the exit code for it."""
    match error:
        case click.Abort() | KeyboardInterrupt():
            return EXIT_INTERRUPTED
        case BrokenPipeError():  # whoever read us has gone
            return EXIT_BROKEN_PIPE
        case click.ClickException():
            message = io.StringIO()
            error.show(message)
            say(message.getvalue().rstrip("\n"))
            return EXIT_USAGE
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


def say(message: str) -> None:
    """Prints to standard error what is safe to see; nobody may be there to read it."""
    with suppress(OSError):
        click.echo(visible_lines(message), err=True)


def _leave(code: int) -> NoReturn:
    """End the process at once: to free a large plan piece by piece takes as long as to print it.

    Whatever a command hung on its context is still there.
    """
    sys.stderr.flush()
    os._exit(code)


def _bug_report(error: BaseException) -> str:
    import traceback  # noqa: PLC0415 - takes as long to import as half of click

    place = traceback.extract_tb(error.__traceback__)[-1]
    report = (
        f"this is a bug of hlomem {__version__}: {visible(f'{type(error).__name__}: {error}')}\n"
        f"  in {place.name}, {Path(place.filename).name}:{place.lineno}\n"
        "  please report it with this message and the input that caused it (SECURITY.md says how)\n"
    )
    if os.environ.get(TRACEBACK):
        return report + "".join(traceback.format_exception(error)).rstrip("\n")
    return report + f"  {TRACEBACK}=1 shows where it happened"
