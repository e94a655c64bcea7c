"""`hlomem advise`: changes that would save memory."""

from __future__ import annotations

from typing import Any

import click

from hlomem.api.advise import advise_on
from hlomem.api.load import load_program
from hlomem.api.opening import open_memory
from hlomem.cli.arguments import with_options
from hlomem.cli.options import BACKEND, CHIP, HLO_TEXT, MODULE_ERA, REPORT, SPACE, WHICH_DUMP
from hlomem.cli.progress import working
from hlomem.cli.screen import write
from hlomem.report.screens.advice_text import draw_advice


@click.command("advise")
@click.argument("path", metavar="DUMP|MODULE")
@with_options((WHICH_DUMP, HLO_TEXT, BACKEND, CHIP, MODULE_ERA, SPACE, *REPORT))
def command(path: str, module: str | None, hlo: str | None, era: str | None, **shown: Any) -> int:
    """Show changes that would reduce memory, by how much, and at what cost.

    Each advice comes with code and a range of bytes. Donations and layouts are changed in the
    program, which is planned again; for the rest (rematerialization, offloading, chunked
    cross-entropy, caches, padding, precision) the temporaries are replayed without the values that
    would go. Without its HLO module, the program of a DUMP is rebuilt first.
    """
    backend, chip, space = (shown.pop(name) for name in ("backend", "chip", "space"))
    memory = open_memory(
        path,
        module=module,
        program=load_program(hlo) if hlo else None,
        backend=backend or "",
        chip=chip or "",
        era=era or "",
    )
    with working(f"trying changes of {path}"):
        advised = advise_on(memory, space=space, era=era or "")
    return write("advice", advised, draw_advice, memory.dump, **shown)
