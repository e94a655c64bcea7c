"""The subject of a command: a dump, or an HLO module that is planned first.

`about_memory` gives a command the arguments they all take, and hands it a `MemoryView` and a
`Space`.
"""

from __future__ import annotations

import sys
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlomem.api.load import load, load_any, load_program
from hlomem.base.errors import EXIT_OK, CommandError
from hlomem.base.source import visible
from hlomem.cli.options import AS_JSON, BACKEND, CHIP, HLO_TEXT, MODULE_ERA, SPACE, WHICH_DUMP
from hlomem.hlo.ir import HloModule
from hlomem.machines.registry import find_chip, find_machine
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from hlomem.report.json import encode
from hlomem.report.screens.text import shorten_front, width, write_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.dump.dump import Dump
    from hlomem.dump.records import Record
    from hlomem.machines.machine import Machine
    from hlomem.report.screens.text import Line

    _Option = Callable[[Callable[..., int]], Callable[..., int]]

SUBJECT = (
    WHICH_DUMP,
    HLO_TEXT,
    BACKEND,
    CHIP,
    MODULE_ERA,
    click.option("--schedule", metavar="DUMP", help="Take a MODULE's instruction order from DUMP."),
)
"""The options `open_memory` takes beside a path."""
_OPTIONS = (
    click.argument("path", metavar="DUMP|MODULE"),
    *SUBJECT,
    SPACE,
    AS_JSON,
)


def about_memory(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the common arguments; `command` gets `memory`, `space` and `as_json` for them."""

    @wraps(command)
    def run(
        path: str,
        module: str | None,
        hlo: str | None,
        backend: str | None,
        chip: str | None,
        era: str | None,
        schedule: str | None,
        space: str | None,
        **others: Any,
    ) -> int:
        memory = open_memory(path, module, hlo, backend, chip, era, schedule)
        click.get_current_context().find_root().obj = memory  # freed with the process, not before
        return command(memory=memory, space=find_space(memory, space), **others)

    return with_options(_OPTIONS)(run)


def with_options(options: Sequence[_Option]) -> _Option:
    """Adds options to a command, in the order they have in its help."""

    def add(command: Callable[..., int]) -> Callable[..., int]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def open_memory(
    path: str,
    module: str | None = None,
    hlo: str | None = None,
    backend: str | None = None,
    chip: str | None = None,
    era: str | None = None,
    schedule: str | None = None,
) -> MemoryView:
    """The memory of a dump, or of a module as XLA would plan it."""
    loaded = load_any(path, module=module)
    if isinstance(loaded, HloModule):
        return _planned(loaded, path, backend or "", chip or "", era or "", schedule)
    for option, value in (("era", era), ("schedule", schedule)):
        if value is not None:
            raise CommandError(f"`--{option}` is for an HLO module; a dump has its own")
    program = load_program(hlo) if hlo else None
    return build_memory(loaded, program, chosen_machine(backend, chip))


def _planned(
    program: HloModule, path: str, backend: str, chip: str, era: str, schedule: str | None
) -> MemoryView:
    from hlomem.api.plan import plan  # noqa: PLC0415 - dumps are read without the planner

    planned = plan(
        program,
        backend=backend,
        chip=chip,
        era=era,
        schedule=load(schedule) if schedule else None,
        name="module" if path == "-" else Path(path).name,
    )
    for note in planned.notes:
        click.echo(f"note: {visible(note)}", err=True)
    return build_memory(planned.dump, program, planned.stages.options.machine, is_planned=True)


def say_new_folder(folder: Path) -> None:
    """Says that an output's folder is not there yet and will be made."""
    if not folder.exists():
        click.echo(f"makes the folder {visible(str(folder))}", err=True)


def chosen_machine(platform: str | None, chip: str | None) -> Machine | None:
    """The machine of `--backend` and `--chip`; None where neither is given."""
    if platform is not None:
        return find_machine(platform, chip or "")
    return None if chip is None else find_chip(chip)


def write(
    kind: str,
    data: Record,
    draw: Callable[[Any, int], list[Line]],
    as_json: bool,
    dump: Dump | None = None,
) -> int:
    """Prints a report, drawn for people or as JSON for programs."""
    if as_json:
        sys.stdout.buffer.write(encode({"kind": kind, **_fields(data)}) + b"\n")
    else:
        write_screen(draw(data, width()), dump)
    return EXIT_OK


def write_screen(lines: list[Line], dump: Dump | None) -> None:
    """Prints a screen whose first line names a dump, and says there if it is one of several."""
    if dump is not None and dump.chosen:
        said = f", {dump.chosen}; --module chooses another"
        title = "".join(piece for piece, _ in lines[0])
        is_title = title == visible(dump.title)
        if is_title and len(title) + len(said) <= width():
            lines = [[*lines[0], (said, "dim")], *lines[1:]]
        else:
            name = shorten_front(visible(dump.title), width() - len(said))
            lines = [[(name, "bold"), (said, "dim")], *(lines[1:] if is_title else lines)]
    write_lines(lines)


def _fields(data: Record) -> dict[str, Any]:
    return {field: getattr(data, field) for field in data.__struct_fields__}
