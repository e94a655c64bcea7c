"""`hlomem oom`: explains an out-of-memory message."""

from __future__ import annotations

from typing import Any

import click

from hlomem.api.load import read_source
from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.options import REPORT
from hlomem.cli.screen import write
from hlomem.report.oom.explanation import build_oom
from hlomem.report.oom.log import read_oom
from hlomem.report.screens.oom_text import draw_oom


@click.command("oom")
@click.argument("path", metavar="[LOG]", default="-")
@with_options(REPORT)
def command(path: str, **shown: Any) -> int:
    """Explain an out-of-memory message of XLA, from a log or pasted.

    LOG is any file that contains the message, or `-`, the default, for standard input. Messages of
    TPU, GPU and CPU at compile and run time are recognised, as well as the allocator's dump and the
    warning of rematerialization.
    """
    source = read_source(path)
    oom = build_oom(read_oom(source.text, source.name))
    if oom is None:
        raise InputError(
            f"{visible(source.name)}: no out-of-memory message of XLA in this text\n"
            "  it begins with RESOURCE_EXHAUSTED, or is a warning of bfc_allocator.cc"
        )
    return write("oom", oom, draw_oom, **shown)
