"""`hlomem oom`: explains an out-of-memory message."""

from __future__ import annotations

import os
from typing import Any

import click

from hlomem.api.load import read_source
from hlomem.base.errors import InputError
from hlomem.base.source import Source, visible
from hlomem.cli.arguments import with_options
from hlomem.cli.options import REPORT
from hlomem.cli.screen import write
from hlomem.report.oom.explanation import build_oom
from hlomem.report.oom.log import read_oom
from hlomem.report.screens.oom_text import draw_oom


def _source(path: str) -> Source:
    """The text of a file, or the argument itself where it is a message and names no file."""
    if path == "-" or os.path.exists(path) or build_oom(read_oom(path)) is None:  # noqa: PTH110 - of any length
        return read_source(path)
    return Source("the message", path)


@click.command("oom")
@click.argument("path", metavar="[LOG]", default="-")
@with_options(REPORT)
def command(path: str, **shown: Any) -> int:
    """Explain an out-of-memory message of XLA, from a log or pasted.

    LOG is any file that contains the message, `-`, the default, for standard input, or the message
    itself. Messages of TPU, GPU and CPU at compile and run time are recognised, as well as the
    allocator's dump and the warning of rematerialization.
    """
    source = _source(path)
    oom = build_oom(read_oom(source.text, source.name))
    if oom is None:
        raise InputError(
            f"{visible(source.name)}: no out-of-memory message of XLA in this text\n"
            "  it begins with RESOURCE_EXHAUSTED, or is a warning of bfc_allocator.cc"
        )
    return write("oom", oom, draw_oom, **shown)
