"""`hlomem compile`: a function's memory on another machine, without running it."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click
import msgspec

from hlomem.base.atomic_files import refuse_existing, write_files
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, CommandError
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import FACTORY_OPTIONS, parse_settings
from hlomem.cli.options import REPORT, SPACE
from hlomem.cli.progress import progress
from hlomem.cli.screen import write_report
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import PlannedProgram, plan_in_child
from hlomem.machines.capacity import parse_capacity
from hlomem.report.data.lookup import find_space
from hlomem.report.data.summary import Summary, build_summary
from hlomem.report.screens.summary_text import draw_summary
from hlomem.report.screens.text import Line, width, wrapped


@click.command("compile")
@with_options(FACTORY_OPTIONS)
@click.option("--full", is_flag=True, help="Finish the compile instead of stopping at its plan.")
@click.option("--capacity", metavar="SIZE|CHIP", help="The device memory, if not the target's.")
@SPACE
@click.option("-o", "--output", metavar="DIR", type=Path, help="Keep the dump in DIR.")
@click.option("--html", metavar="FILE", type=Path, help="Write the report as a page.")
@click.option("--force", is_flag=True, help="Write into a DIR that has files, overwrite FILE.")
@with_options(REPORT)
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
    **shown: Any,
) -> int:
    """Compile a function for another machine, and show its memory.

    FACTORY is a function of an importable MODULE, or of a file: train.py:make_step. It is called
    with the settings, and with the target's devices if it has a parameter `devices`, and returns
    (function, arguments), arrays or jax.ShapeDtypeStructs, or a jax.stages.Lowered. The compiler is
    stopped at its memory plan. The exit code is 1 if the program does not fit. See
    docs/jax.md.
    """
    size = parse_capacity(capacity) if capacity else None
    _check_outputs(output, html, force=force)
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
    write_report(
        lambda: _content(job, planned, summary),
        lambda: [
            *draw_summary(summary, width()),
            *_draw_compile(planned, width()),
            *_draw_next(job, summary, width()),
        ],
        **shown,
    )
    return EXIT_FINDING if _exceeds(planned, summary) else EXIT_OK


def _check_outputs(output: Path | None, html: Path | None, *, force: bool) -> None:
    if output is not None and output.exists() and not force:
        if not output.is_dir():
            raise CommandError(f"{visible(str(output))} is not a folder")
        if any(output.iterdir()):
            raise CommandError(f"{visible(str(output))} has files; give --force to add to them")
    refuse_existing(html, force=force)


def _exceeds(planned: PlannedProgram, summary: Summary) -> bool:
    capacity = summary.capacity
    is_larger = capacity is not None and summary.space.size > capacity.size
    return bool(planned.refusal) or is_larger


def _write_page(planned: PlannedProgram, summary: Summary, html: Path, *, force: bool) -> None:
    from hlomem.api.advise import build_advised_page  # noqa: PLC0415 - only a page needs it
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
    packages = ", ".join(f"{name} {found}" for name, found in planned.facts.versions.items())
    how = "stopped at its memory plan" if planned.is_stopped else "fully compiled"
    how = "rejected after planning" if planned.refusal else how
    words = f"{packages}; {how}, {planned.cpu_seconds:.1f} s of CPU time"
    lines: list[Line] = [[]]
    if planned.refusal:
        said = visible(planned.refusal.partition("\n")[0])
        lines += wrapped(f"XLA rejects it: {said}", columns, "  ", "red")
    return [*lines, *wrapped(words, columns, "  ", "dim")]


def _draw_next(job: Job, summary: Summary, columns: int) -> list[Line]:
    """The command that tries changes until the program fits; nothing if it does."""
    capacity = summary.capacity
    if capacity is None or summary.space.size <= capacity.size:
        return []
    settings = [f"--set {quote(f'{name}={value}')}" for name, value in job.settings.items()]
    words = ["hlomem advise", quote(job.factory), f"--target {job.target}", *settings]
    words.append(f"--fit {capacity.name or capacity.size}")
    lines = ["  "]
    for word in map(visible, words):
        if len(lines[-1]) + len(word) + len(" \\") > columns and lines[-1].strip():
            lines[-1] += "\\"  # the shell goes on in the next line
            lines.append("    ")
        lines[-1] += f"{word} "
    title: Line = [("Find the cheapest changes that fit", "bold")]
    return [[], title, *([(line.rstrip(" "), "")] for line in lines)]
