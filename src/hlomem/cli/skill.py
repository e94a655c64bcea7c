"""`hlomem skill`: where the pages for coding agents are."""

from __future__ import annotations

from pathlib import Path

import click

from hlomem.agents.skill import copy_skill, find_skill
from hlomem.base.errors import EXIT_OK
from hlomem.base.source import visible


@click.command("skill")
@click.option("--to", "parent", metavar="DIR", type=Path, help="Copy it to DIR/hlomem.")
@click.option("--force", is_flag=True, help="Overwrite the files there.")
def command(parent: Path | None, force: bool) -> int:
    """Show where the skill for coding agents is, or copy it.

    SKILL.md says which command answers which question; its other pages have one question each.
    Agents look for skills in a folder of their own, such as ~/.claude/skills.
    """
    folder = find_skill() if parent is None else copy_skill(parent, force=force)
    click.echo(visible(str(folder)))
    return EXIT_OK
