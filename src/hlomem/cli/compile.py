"""`hlomem compile`: a function's memory on a machine that is not here, before anything runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hlomem.base.atomic_files import write_files
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, CommandError
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import FACTORY_OPTIONS, parse_settings
from hlomem.cli.options import AS_JSON, SPACE
from hlomem.cli.progress import progress
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child
from hlomem.machines.capacity import parse_capacity
from hlomem.report.data.lookup import find_space
from hlomem.report.data.summary import build_summary
from hlomem.report.json import encode
from hlomem.report.screens.summary_text import draw_summary
from hlomem.report.screens.text import width, wrap, write_lines

if TYPE_CHECKING:
    from hlomem.jax.compile.parent import PlannedProgram
    from hlomem.report.data.summary import Summary
    from hlomem.report.screens.text import Line


@click.command("compile")
@with_options(FACTORY_OPTIONS)
@click.option("--full", is_flag=True, help="Wait for the whole compile, not for its plan only.")
@click.option("--capacity", metavar="SIZE|CHIP", help="What the device has, if not the target's.")
@SPACE
@click.option("-o", "--output", metavar="DIR", type=Path, help="Leave the dump there.")
@click.option("--html", metavar="FILE", type=Path, help="Write the report as a page.")
@click.option("--force", is_flag=True, help="Write into a DIR that has files, overwrite FILE.")
@AS_JSON
def command(
    factory: str,
    target: str,
    settings: tuple[str, ...],
    imports: tuple[str, ...],
    timeout: float,
    full: bool,
    capacity: str | None,
    space: str | None,
    output: Path | None,
    html: Path | None,
    force: bool,
    as_json: bool,
) -> int:
    """Compile a function for a machine that is not here, and show its memory.

    FACTORY is a function of an importable MODULE, or of a file: train.py:make_step. Called with the
    settings, and with the target's devices if it has a parameter `devices`, it returns (function,
    arguments), arrays or jax.ShapeDtypeStructs, or a jax.stages.Lowered. The compiler is stopped
    when its plan is complete. The exit code is 1 when the program does not fit. docs/jax.md says
    more.
    """
    size = parse_capacity(capacity) if capacity else None
    _check_places(output, html, force=force)
    job = Job(factory=factory, target=target, settings=parse_settings(settings), imports=imports)
    with progress() as draw:
        planned = plan_in_child(
            job,
            timeout=timeout,
            output=output,
            is_full=full,
            on_progress=lambda doing: draw(f"{doing} {factory} for {target}"),
        )
    memory = planned.memory.memory
    summary = build_summary(memory, find_space(memory, space), size or planned.target.capacity)
    if html is not None:
        _write_page(planned, summary, html, force=force)
    if as_json:
        sys.stdout.buffer.write(encode(_content(job, planned, summary)) + b"\n")
    else:
        write_lines([*draw_summary(summary, width()), *_draw_compile(planned, width())])
    return EXIT_FINDING if _exceeds(planned, summary) else EXIT_OK


def _check_places(output: Path | None, html: Path | None, *, force: bool) -> None:
    """Refuses now the places that could not be written to later."""
    if output is not None and output.exists() and not force:
        if not output.is_dir():
            raise CommandError(f"{visible(str(output))} is no folder")
        if any(output.iterdir()):
            raise CommandError(f"{visible(str(output))} has files; give --force to add to them")
    if html is not None and html.exists() and not force:
        raise CommandError(f"{visible(str(html))} exists; give --force to overwrite it")


def _exceeds(planned: PlannedProgram, summary: Summary) -> bool:
    capacity = summary.capacity
    is_larger = capacity is not None and summary.space.size > capacity.size
    return bool(planned.refusal) or is_larger


def _write_page(planned: PlannedProgram, summary: Summary, html: Path, *, force: bool) -> None:
    from hlomem.advice.page import build_advised_page  # noqa: PLC0415 - only a page needs it
    from hlomem.report.page.html import format_page  # noqa: PLC0415 - as above

    text = format_page([build_advised_page(planned.memory.memory, summary.capacity)])
    write_files(html.parent, {html.name: [text.encode()]}, force=force)
    click.echo(f"{html}", err=True)


def _content(job: Job, planned: PlannedProgram, summary: Summary) -> dict[str, Any]:
    return {
        "kind": "compile",
        "factory": job.factory,
        "target": planned.target.name,
        "settings": job.settings,
        "fits": not _exceeds(planned, summary),
        "refusal": planned.refusal,
        "is_whole_compile": not planned.is_stopped,
        "cpu_seconds": round(planned.cpu_seconds, 2),
        "facts": msgspec.to_builtins(planned.facts),
        "summary": summary,
    }


def _draw_compile(planned: PlannedProgram, columns: int) -> list[Line]:
    """By what it was planned, how long that took, and what XLA says where it refuses."""
    packages = ", ".join(f"{name} {found}" for name, found in planned.facts.versions.items())
    how = "stopped once its plan was complete" if planned.is_stopped else "compiled to the end"
    how = "refused once it was planned" if planned.refusal else how
    words = f"{packages}; {how}, {planned.cpu_seconds:.1f} s of CPU time"
    lines: list[Line] = [[]]
    if planned.refusal:
        said = visible(planned.refusal.partition("\n")[0])
        lines += [[(line, "red")] for line in wrap(f"XLA refuses it: {said}", columns, "  ")]
    return [*lines, *([(line, "dim")] for line in wrap(words, columns, "  "))]
