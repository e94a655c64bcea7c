"""`hlomem completion`: the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from hlomem.base.errors import EXIT_OK
from hlomem.cli.group import COMPLETE, commands

_SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def command(shell: str) -> int:
    """Print the script that makes a shell complete commands and options.

    In bash: eval "$(hlomem completion bash)" in ~/.bashrc; in zsh the same with zsh in ~/.zshrc; in
    fish: hlomem completion fish > ~/.config/fish/completions/hlomem.fish.
    """
    made = _SHELLS[shell](commands, {}, "hlomem", COMPLETE)
    click.echo(ShellComplete.source(made))  # without asking the shell for its version
    return EXIT_OK
