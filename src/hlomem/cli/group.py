"""The commands as a click group: for help, errors, and all but the plainest command lines."""

from __future__ import annotations

import io
import os
from importlib import import_module

from hlomem import __version__
from hlomem.base.errors import EXIT_OK, EXIT_USAGE
from hlomem.base.gc_pause import collector_off
from hlomem.base.sizes import parse_size
from hlomem.base.source import visible
from hlomem.cli import EXIT_INTERRUPTED
from hlomem.cli.commands import COMMANDS, MORE, QUESTIONS
from hlomem.cli.parameters import Command
from hlomem.cli.process import say
from hlomem.report.registry import REPORTS

with collector_off():  # imports create no garbage
    import click
    from click.shell_completion import shell_complete

ALL_COMMANDS = "hlomem.all_commands"
"""The key in a context's `meta` that has its help list all commands."""
COMPLETE = "_HLOMEM_COMPLETE"
"""The environment variable by which a shell requests completions."""


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
    help="Reject larger files, unpacked.  [default: 4GiB]",
)


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
        if isinstance(command, Command):
            command = command.to_click()
        assert isinstance(command, click.Command)
        if _MAX_INPUT not in command.params:
            command.params.append(_MAX_INPUT)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        is_whole = bool(ctx.meta.get(ALL_COMMANDS))
        for title, group in {**QUESTIONS, **(MORE if is_whole else {})}.items():
            formatter.write(f"\n{title}\n")  # a question has no colon
            with formatter.indentation():
                formatter.write_dl([(name.ljust(widest), help_) for name, help_ in group.items()])
        if not is_whole:
            count = len(COMMANDS) - sum(map(len, QUESTIONS.values()))
            formatter.write_paragraph()
            formatter.write_text(f"{count} more commands: hlomem help --all")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415 - only for typos

            near = get_close_matches(args[0], COMMANDS, n=2, cutoff=0.6)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command '{visible(args[0])}'.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="hlomem %(version)s")
def commands() -> None:
    """Read, show and explain the memory plans of XLA programs.

    Dumps come from XLA_FLAGS="--xla_dump_to=DIR --xla_dump_hlo_as_text".

    Exit codes: 0 fine, 1 a finding, 2 wrong usage, 3 unreadable input or unwritable output, 4 a bug
    in hlomem.
    """


def run(words: list[str]) -> int:
    if wish := os.environ.get(COMPLETE):
        return shell_complete(commands, {}, "hlomem", COMPLETE, wish)
    try:
        with commands.make_context("hlomem", words) as context:
            result = commands.invoke(context)
        return result if isinstance(result, int) else EXIT_OK
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        say(message.getvalue().rstrip("\n").replace(",\n\t", ", ").replace("\n\t", " "))
        return EXIT_USAGE
