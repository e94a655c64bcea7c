"""`hlomem diff`: two compiles of one program."""

from __future__ import annotations

from typing import Any

import click

from hlomem.base.errors import EXIT_FINDING, EXIT_OK
from hlomem.base.growth_limit import parse_limit
from hlomem.base.sizes import format_bytes
from hlomem.cli.arguments import open_both, with_options
from hlomem.cli.options import REPORT, SPACE, WHICH_DUMP
from hlomem.cli.progress import working
from hlomem.cli.screen import write
from hlomem.report.data.diff import GROUPINGS, Diff, Grouping, build_diff, name_sides
from hlomem.report.screens.diff_text import draw_diff


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--by", type=click.Choice(GROUPINGS), default="line", show_default=True)
@WHICH_DUMP
@SPACE
@click.option(
    "--fail-on", metavar="LIMIT", help="Exit 1 if B reserves more than A by +2%, +1GiB, …"
)
@with_options(REPORT)
def command(
    before: str,
    after: str,
    by: Grouping,
    module: str | None,
    space: str | None,
    fail_on: str | None,
    **shown: Any,
) -> int:
    """Show what changed in memory between two compiles of one program.

    A and B are inputs as for `show`, from any versions or backends of XLA; an HLO module is planned
    first. Buffers are matched by operation and source line, not by name, and the differences add up
    to the difference of the reserved bytes.
    """
    with working(f"comparing {before} with {after}"):
        memories = open_both(before, after, module=module)
        found = name_sides(build_diff(*memories, by=by, space=space), before, after)
    limit = None if fail_on is None else parse_limit(fail_on, found.before.size)
    write("diff", found, draw_diff, **shown)
    return EXIT_OK if limit is None or found.delta <= limit else _over(found, limit)


def _over(found: Diff, limit: int) -> int:
    more, allowed = format_bytes(found.delta), format_bytes(limit)
    click.echo(f"over the limit: {more} more, {allowed} allowed", err=True)
    return EXIT_FINDING
