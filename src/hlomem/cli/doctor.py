"""`hlomem doctor`: installed packages, compile targets, and folders of dumps."""

from __future__ import annotations

from typing import Any

import click

from hlomem.api.doctor import examine
from hlomem.cli.arguments import with_options
from hlomem.cli.options import REPORT
from hlomem.cli.screen import write
from hlomem.jax.target_kinds import examine_targets
from hlomem.report.screens.health_text import draw_health


@click.command("doctor")
@with_options(REPORT)
def command(**shown: Any) -> int:
    """Show installed packages, compile targets, and folders of dumps.

    For targets that are not ready, the install command is shown. Nothing is imported or changed.
    """
    return write("health", examine(examine_targets()), draw_health, **shown)
