"""The common arguments of commands: a dump, or an HLO module that is planned first."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlomem.api import opening
from hlomem.api.load import load, load_program, reading_once
from hlomem.cli.options import BACKEND, CHIP, HLO_TEXT, MODULE_ERA, REPORT, SPACE, WHICH_DUMP
from hlomem.cli.parameters import argument, option
from hlomem.cli.process import keep, say
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, share_view

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Option = Callable[[Callable[..., int]], Callable[..., int]]

SUBJECT = (
    WHICH_DUMP,
    HLO_TEXT,
    BACKEND,
    CHIP,
    MODULE_ERA,
    option("--schedule", metavar="DUMP", help="Take a MODULE's instruction order from DUMP."),
)
MEMORY = (argument("path", metavar="DUMP|MODULE"), *SUBJECT, SPACE, *REPORT)


def about_memory(command: Callable[..., int]) -> Callable[..., int]:
    return with_options(MEMORY)(with_memory(command))


def with_memory(command: Callable[..., int]) -> Callable[..., int]:
    """Replace the common arguments of a command by `memory` and `space`."""

    @wraps(command)
    def run(path: str, space: str | None, **others: Any) -> int:
        subject = {option.keyword: others.pop(option.keyword) for option in SUBJECT}
        memory = open_memory(path, **subject)
        keep(memory)
        return command(memory=memory, space=find_space(memory, space), **others)

    return run


def with_options(options: Sequence[_Option]) -> _Option:
    """Add options to a command, in the order of its help."""

    def add(command: Callable[..., int]) -> Callable[..., int]:
        for decorate in reversed(options):
            command = decorate(command)
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
    """The memory of a dump, or of a module as XLA would plan it; what was assumed is said."""
    memory = opening.open_memory(
        path,
        module=module,
        program=load_program(hlo) if hlo else None,
        backend=backend or "",
        chip=chip or "",
        era=era or "",
        schedule=load(schedule) if schedule else None,
        name="module" if path == "-" else Path(path).name,
    )
    for note in memory.notes:
        say(f"note: {note}")
    return memory


def open_both(path: str, other: str, **subject: str | None) -> tuple[MemoryView, MemoryView]:
    """Two memories; equal files are read once."""
    with reading_once():
        before, after = open_memory(path, **subject), open_memory(other, **subject)
    return before, share_view(before, after)
