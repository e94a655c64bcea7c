"""`hlomem replan`: plans the program of a dump again, without its HLO module."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlomem.api.load import load
from hlomem.api.replan import replan
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, InputError
from hlomem.base.gc_pause import collector_off
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.cli.options import BACKEND, CHIP, WHICH_DUMP
from hlomem.cli.plan import is_right, write_plan
from hlomem.cli.progress import working
from hlomem.cli.screen import write_screen
from hlomem.dump.compare import Difference, find_differences
from hlomem.report.screens.text import Line, shorten, width

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.api.plan import Plan
    from hlomem.dump.dump import Dump


@click.command("replan")
@click.argument("path", metavar="DUMP")
@WHICH_DUMP
@click.option("--check", is_flag=True, help="Compare the plan with the dump, byte for byte.")
@BACKEND
@CHIP
@click.option("--era", default="", metavar="ERA", help="Plan as this XLA: K, jaxlib-0.7.2, …")
@click.option("--like", metavar="DUMP", help="Plan as the XLA that wrote DUMP.")
@click.option("-o", "--output", metavar="DIR", type=Path, help="Write XLA's files into DIR.")
@click.option("--force", is_flag=True, help="Overwrite files in DIR.")
@click.option("--verify", is_flag=True, help="Check the plan; if it is wrong, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="All records as JSON (schema hlomem/1).")
@collector_off()
def command(
    path: str,
    module: str | None,
    check: bool,
    backend: str | None,
    chip: str | None,
    era: str,
    like: str | None,
    output: Path | None,
    force: bool,
    verify: bool,
    as_json: bool,
) -> int:
    """Plan a dump's program again, without its HLO module.

    DUMP is an input as for `show`. The program is rebuilt from it and planned as XLA does;
    assumptions are printed on standard error. With --check, the first difference of every stage is
    shown, and the exit code is 1 if there is one.
    """
    dump = load(path, module=module)
    with working(f"planning {path} again"), _naming(path, dump):
        made = replan(
            dump,
            backend=backend or "",
            chip=chip or "",
            era=era,
            like=load(like) if like else None,
            name=_stem(dump),
        )
    if verify and not is_right(made):
        return EXIT_FINDING
    differences = find_differences(dump, made.dump) if check else []
    if output is not None or not (check or as_json):
        write_plan(made, output, force=force)
    if as_json:
        sys.stdout.buffer.write(_encode(made, differences if check else None) + b"\n")
    elif check:
        write_screen(draw_check(dump, differences, width()), dump)
    for note in made.notes:
        click.echo(f"note: {visible(note)}", err=True)
    return EXIT_FINDING if differences else EXIT_OK


@contextmanager
def _naming(path: str, dump: Dump) -> Iterator[None]:
    """Errors name the file, too, where a dump has the name of a program in it."""
    try:
        yield
    except InputError as error:
        if dump.name == path or str(error).startswith(visible(path)):
            raise
        raise InputError(f"{visible(path)}: {error}") from error


def _stem(dump: Dump) -> str:
    name = Path(dump.name).name.removesuffix(".gz").removesuffix(".txt")
    return name.removesuffix("-buffer-assignment") or "module"


def _encode(made: Plan, differences: list[Difference] | None) -> bytes:
    from hlomem.report.json import dump_content, encode  # noqa: PLC0415 - few ask for it

    content = {**dump_content(made.dump), "kind": "replan", "notes": made.notes}
    if differences is not None:
        content["differences"] = differences
    return encode(content)


def draw_check(dump: Dump, differences: list[Difference], columns: int) -> list[Line]:
    assert dump.values is not None
    assert dump.assignment is not None
    count = len(dump.assignment.allocations)
    lines: list[Line] = [
        [(shorten(visible(dump.title), columns), "bold")],
        [
            ("different" if differences else "same", "bold red" if differences else "bold green"),
            (f"  {len(dump.values.values)} values in {count} allocations", ""),
            (f", {format_bytes(dump.values.total_bytes)}", ""),
        ],
    ]
    for difference in differences:
        lines.append([(f"{difference.stage}, line {difference.line}", "yellow")])
        column = _first_difference(difference.ours or "", difference.theirs or "")
        for mark, text in (("-", difference.ours), ("+", difference.theirs)):
            if text is not None:
                lines.append([(f"  {mark} {_excerpt(text, column, columns - 4)}", "")])
    return lines


def _first_difference(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _excerpt(text: str, column: int, columns: int) -> str:
    """`text` in at most `columns` cells around `column`."""
    first = max(0, min(column - columns // 2, len(text) - columns))
    piece = visible(text[first : first + columns])
    return ("…" + piece[1:] if first else piece)[:columns]
