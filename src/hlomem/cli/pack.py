"""`hlomem pack`: offsets for a packing problem in CSV, with a proof if possible."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlomem.api.load import encode as encode_text
from hlomem.api.load import read_source
from hlomem.api.pack import DEFAULT_EFFORT, pack
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import EXIT_FINDING, EXIT_OK
from hlomem.base.sizes import format_bytes, parse_size
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.options import REPORT
from hlomem.cli.progress import working
from hlomem.cli.screen import write_report
from hlomem.packer.check import find_problems
from hlomem.packer.table import Problem, read_problem, write_solution
from hlomem.report.screens.text import shorten, width

if TYPE_CHECKING:
    from hlomem.packer.buffers import Packing
from hlomem.report.screens.text import Line

_SAID = {
    "at the bound": "the heap equals the peak live bytes: none is smaller",
    "proven optimal": "every smaller heap was excluded by search",
    "fits": "the capacity is sufficient",
    "proven not to fit": "the capacity is too small for every packing",
    "unknown within effort": "a smaller heap may exist; --effort searches longer",
}
_STYLE = {"proven not to fit": "bold red", "unknown within effort": "bold yellow"}


def _capacity(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    is_number = re.fullmatch(r"(?a)\d{1,300}", text)
    size = int(text) if is_number else parse_size(text)
    if size is None:
        raise click.BadParameter(f"`{text}` is not a size such as 1048576, 4GiB or 500M")
    return size


@click.command("pack")
@click.argument("path", metavar="PROBLEM")
@click.option("--capacity", callback=_capacity, metavar="SIZE", help="Must fit: 1048576, 16GiB, …")
@click.option("-o", "--output", metavar="FILE", type=Path, help="Write the solution as CSV.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option(
    "--effort",
    type=click.IntRange(min=0),
    default=DEFAULT_EFFORT,
    metavar="STEPS",
    show_default=True,
    help="Steps of exact search.",
)
@click.option("--solver", is_flag=True, help="Use CP-SAT if it stays open (hlomem[solver]).")
@with_options(REPORT)
def command(
    path: str,
    capacity: int | None,
    output: Path | None,
    force: bool,
    effort: int,
    solver: bool,
    **shown: Any,
) -> int:
    """Find the smallest heap for buffers with lifetimes, and prove it.

    PROBLEM is CSV as for MiniMalloc: columns id, lower, upper, size and optionally alignment. A
    buffer is alive in [lower, upper). The solution has an additional column, offset. With
    --capacity the exit code is 1 if the buffers do not fit, or no packing was found within the
    effort; the status says which.
    """
    problem = read_problem(read_source(path))
    with working(f"packing {len(problem.buffers)} buffers"):
        packing = pack(problem.buffers, capacity=capacity, effort=effort, second_opinion=solver)
    wrong = find_problems(problem.buffers, packing.offset_of, packing.height)
    if wrong:
        raise RuntimeError(f"a wrong packing: {wrong[0]}")
    is_found = capacity is None or packing.height <= capacity
    if output is not None and is_found:
        lines = map(encode_text, write_solution(problem, packing.offset_of))
        write_files(output.parent, {output.name: lines}, force=force)
    write_report(
        lambda: _content(path, packing, capacity),
        lambda: _draw(path, problem, packing, capacity),
        **shown,
    )
    return EXIT_OK if is_found else EXIT_FINDING


def _content(path: str, packing: Packing, capacity: int | None) -> dict[str, Any]:
    fields = {name: getattr(packing, name) for name in packing.__struct_fields__}
    return {"kind": "packing", "name": path, "capacity": capacity, **fields}


def _draw(path: str, problem: Problem, packing: Packing, capacity: int | None) -> list[Line]:
    rows = {
        "buffers": f"{len(problem.buffers)}",
        "heap": _size(packing.height),
        "bound": _size(packing.lower_bound),
    }
    if capacity is not None:
        rows["capacity"] = _size(capacity)
    rows["found by"] = packing.method
    if packing.steps:
        rows["search"] = f"{packing.steps} steps"
    said = _SAID[packing.status]
    if capacity is not None and packing.status == "unknown within effort":
        said = "neither a packing nor a proof was found; --effort searches longer"
    return [
        [(shorten(visible(path), width()), "bold")],
        [(packing.status, _STYLE.get(packing.status, "bold green")), (f": {said}", "")],
        *([(f"  {name:<10}", ""), (text, "")] for name, text in rows.items()),
    ]


def _size(size: int) -> str:
    shown = format_bytes(size)
    return shown if shown.startswith(f"{size} ") else f"{size} bytes ({shown})"
