"""`hlomem mcp`: the main questions as tools of an agent."""

from __future__ import annotations

import click

from hlomem.agents.server import build_server
from hlomem.base.errors import EXIT_OK


@click.command("mcp")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=1800.0,
    show_default=True,
    help="Give up on an answer after this time.",
)
def command(timeout: float) -> int:
    """Serve the main questions to agents by the Model Context Protocol.

    The server speaks on standard input and output, needs `pip install 'hlomem[mcp]'`, and writes no
    file. Its six tools are the commands compile, summary, diff, advise, job and oom with --json.
    """
    build_server(timeout).run()
    return EXIT_OK
