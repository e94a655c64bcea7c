"""`hlomem help`: the commands, or the help of one."""

from __future__ import annotations

import click

from hlomem.base.errors import EXIT_OK
from hlomem.cli.group import ALL_COMMANDS, commands


@click.command("help")
@click.argument("name", metavar="[COMMAND]", required=False)
@click.option("--all", "is_whole", is_flag=True, help="List every command.")
def command(name: str | None, is_whole: bool) -> int:
    """Show the commands, or the help of one."""
    context = click.Context(commands, info_name="hlomem")
    if name is None:
        context.meta[ALL_COMMANDS] = is_whole
        click.echo(commands.get_help(context))
        return EXIT_OK
    _, found, _ = commands.resolve_command(context, [name])
    assert found is not None
    with click.Context(found, info_name=name, parent=context) as own:
        click.echo(found.get_help(own))
    return EXIT_OK
