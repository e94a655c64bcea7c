"""`hlomem advise`: changes that would save memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlomem.api.advise import advise_on
from hlomem.api.load import load_program
from hlomem.api.opening import open_memory
from hlomem.base.atomic_files import refuse_existing, write_files
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, CommandError
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import SET, parse_settings
from hlomem.cli.options import BACKEND, CHIP, HLO_TEXT, MODULE_ERA, REPORT, SPACE, WHICH_DUMP
from hlomem.cli.progress import progress, working
from hlomem.cli.screen import write
from hlomem.machines.capacity import parse_capacity
from hlomem.report.screens.advice_text import draw_advice

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.report.data.advice import AdviceReport
    from hlomem.report.data.memory import MemoryView


@click.command("advise")
@click.argument("path", metavar="DUMP|MODULE|MODULE:FACTORY")
@click.option(
    "--target",
    default="",
    metavar="TARGET",
    help="Compile a FACTORY's changes for: tpu-v5e:2x2, …",
)
@SET
@click.option(
    "--fit",
    metavar="SIZE|CHIP",
    help="Find the cheapest changes of a FACTORY that fit this memory, as in 15.75GiB or v5e.",
)
@click.option("--html", metavar="FILE", type=Path, help="Write the report with it as a page.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@with_options((WHICH_DUMP, HLO_TEXT, BACKEND, CHIP, MODULE_ERA, SPACE, *REPORT))
def command(
    path: str,
    target: str,
    settings: tuple[str, ...],
    fit: str | None,
    html: Path | None,
    force: bool,
    module: str | None,
    hlo: str | None,
    era: str | None,
    **shown: Any,
) -> int:
    """Show changes that would reduce memory, by how much, and at what cost.

    Of a FACTORY (as for `hlomem compile`: train.py:make_step) every change is made in its source
    and compiled for the target, without writing a file: the screen says what each one got, and
    prints it as a diff. With --fit combinations are compiled, the cheapest first, until one fits;
    the exit code is 1 if none does.

    Of a DUMP or MODULE donations, layouts and orders are changed in the program, which is planned
    again; the rest is named as possible, without bytes. Without its HLO module, the program of a
    DUMP is rebuilt first.
    """
    refuse_existing(html, force=force)
    page = None if html is None else partial(_write_page, html, force=force)
    backend, chip, space = (shown.pop(name) for name in ("backend", "chip", "space"))
    if target or settings or fit or is_factory(path):
        given = {"--module": module, "--hlo": hlo, "--backend": backend, "--chip": chip}
        for option, value in {**given, "--era": era, "--space": space}.items():
            if value:
                raise CommandError(f"`{option}` is for a dump or module, not for a factory")
        return _of_factory(path, target, settings, fit, page, **shown)
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
    if page is not None:
        page(memory, advised, None)
    return write("advice", advised, draw_advice, memory.dump, **shown)


def is_factory(path: str) -> bool:
    """Whether a word names a function of a module rather than a file."""
    place, colon, name = path.rpartition(":")
    return bool(colon and place and name.isidentifier()) and not Path(path).exists()


def _write_page(
    file: Path, memory: MemoryView, advised: AdviceReport, fit: str | None, *, force: bool
) -> None:
    from hlomem.report.page.html import format_page  # noqa: PLC0415 - only a page needs it
    from hlomem.report.page.page import build_page  # noqa: PLC0415

    text = format_page([build_page(memory, parse_capacity(fit) if fit else None, advised)])
    write_files(file.parent, {file.name: [text.encode()]}, force=force)
    click.echo(visible(str(file)), err=True)


def _of_factory(
    factory: str,
    target: str,
    settings: tuple[str, ...],
    fit: str | None,
    page: Callable[[MemoryView, AdviceReport, str | None], None] | None,
    **shown: Any,
) -> int:
    from hlomem.jax.trials.advise import advise  # noqa: PLC0415 - only this needs JAX

    plans: list[MemoryView] = []
    with progress() as draw:
        advised = advise(
            factory,
            target=target or None,
            fit=fit,
            settings=parse_settings(settings),
            on_progress=draw,
            on_plan=plans.append,
        )
    if page is not None:
        page(plans[0], advised, fit)
    write("advice", advised, draw_advice, **shown)
    found = advised.together
    return EXIT_FINDING if fit and (found is None or not found.fits) else EXIT_OK
