"""Lines after a command has ended: its largest programs, what must fit together, what failed.

In: the folder XLA dumped to, when the command began, and the end of its standard error. Out: a few
lines, and a page of the program that did not fit, or else of the largest.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from hlomem.api.explain import explain
from hlomem.api.folder import draw_list, list_modules, measure_all
from hlomem.api.load import read_source
from hlomem.api.oom import describe_failure, describe_unknown, find_failure
from hlomem.assign.footprint import footprint
from hlomem.base.errors import HlomemError, InputError
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.dump.parts import parse_headers
from hlomem.report.oom.matching import match_failure
from hlomem.report.oom.note import HEAD
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.api.explain import MemoryExplanation
    from hlomem.api.folder import ModuleSize
    from hlomem.dump.records import Allocation

TOP = 8
"""Programs that are listed."""
_MODULE = re.compile(r"module_\d+\.(.+?)(?:\.cl_\d+)?\.[\w.]*after_optimizations")


class DumpedProgram:
    """A program of the folder, with what an error may know it by."""

    def __init__(self, sized: ModuleSize) -> None:
        self.sized = sized
        found = _MODULE.match(sized.module.name)
        self.module_name = sized.module.name if found is None else found[1]
        self.size = sized.size or 0

    @cached_property
    def _allocations(self) -> list[Allocation]:
        return parse_headers(read_source(self.sized.module.files[0]))

    @property
    def allocation_sizes(self) -> frozenset[int]:
        """Bytes of each allocation."""
        return frozenset(allocation.size for allocation in self._allocations)

    @property
    def constants(self) -> int:
        """Bytes of its constants in the device's main memory."""
        return footprint([head for head in self._allocations if head.is_constant])

    def explain(self) -> MemoryExplanation:
        """The explanation of its memory."""
        return explain(self.sized.module.files[0])


class Outcome(NamedTuple):
    """A command's end, and what it leaves to look at."""

    folder: Path
    began: float
    """The time it was started; older dumps in the folder are not the command's."""
    tail: str
    """The end of its standard error."""
    dropped: int = 0
    """Programs whose dumps were removed."""


def report_run(outcome: Outcome, page: Path | None) -> list[str]:
    """The lines; the page is written on the way, over one that is there."""
    programs = _programs_of(outcome)
    failure = find_failure(outcome.tail)
    if not programs:
        problem = "no program was compiled, or the command sets XLA_FLAGS of its own"
        return [f"{HEAD} XLA has written no dump: {problem}"]
    lines = _draw_programs(programs, outcome.dropped)
    if failure is None:
        return [*lines, *_write_page(programs[0], page)]
    found = match_failure(failure, programs)
    if found is None:
        count = len(programs) + outcome.dropped
        return [*lines, *describe_unknown(failure, count).splitlines()]
    program, match = found
    try:
        note = describe_failure(program.explain(), failure, match.reason, page)
    except HlomemError as error:
        note = f"{HEAD} the dump of {program.module_name} cannot be read: {error}"
    return [*lines, *note.splitlines()]


def _programs_of(outcome: Outcome) -> list[DumpedProgram]:
    """The command's programs, the largest first; those without a readable dump are none."""
    try:
        modules = [
            module
            for module in list_modules(outcome.folder)
            if module.files[0].stat().st_mtime >= outcome.began
        ]
    except (InputError, OSError):  # the command has removed its folder
        return []
    sized = measure_all(modules, read_source)
    return [DumpedProgram(measured) for measured in sized if measured.size is not None]


def _draw_programs(programs: list[DumpedProgram], dropped: int) -> list[str]:
    count = plural(len(programs) + dropped, "program")
    lines = [f"{HEAD} {count} compiled, by what each reserves"]
    lines += draw_list([program.sized for program in programs], TOP)
    if dropped:
        lines.append(f"{'':>12}  and {dropped} smaller, whose dumps there was no room for")
    largest, *others = programs
    constants = sum(program.constants for program in others)
    words = (
        f"must fit together: {format_bytes(largest.size)} while {largest.sized.module.title} runs"
    )
    if constants:
        words += f", and {format_bytes(constants)} of constants of the others as long as loaded"
    return [*lines, visible(words)]


def _write_page(program: DumpedProgram, page: Path | None) -> list[str]:
    if page is None:
        return []
    try:
        program.explain().write_page(page, force=True)
    except HlomemError as error:
        return [f"no page: {error}"]
    return [f"page of {visible(program.sized.module.title)}: {visible(str(page.resolve()))}"]
