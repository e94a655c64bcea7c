"""The report after a command: its largest programs, an out-of-memory error, and a page."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from hlomem.api.explain import MemoryExplanation, explain
from hlomem.api.folder import ModuleSize, draw_list, list_modules, measure_all
from hlomem.api.load import read_source
from hlomem.api.oom import describe_failure, describe_unknown, describe_verdict, find_oom
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

    from hlomem.dump.records import Allocation

TOP = 8
"""Limit of listed programs."""
_WORTH_LISTING = 0.01
"""Share of the largest program's memory below which programs are one row."""
_MODULE = re.compile(r"module_\d+\.(.+?)(?:\.cl_\d+)?\.[\w.]*after_optimizations")


class DumpedProgram:
    """A program of the folder, with the facts by which an error may refer to it."""

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
        return frozenset(allocation.size for allocation in self._allocations)

    @property
    def constants(self) -> int:
        """Bytes of constants in the main memory space."""
        return footprint([head for head in self._allocations if head.is_constant])

    def explain(self) -> MemoryExplanation:
        return explain(self.sized.module.files[0])


class RunOutcome(NamedTuple):
    folder: Path
    began: float
    """The start time; older dumps in the folder are not the command's."""
    tail: str
    """The end of its standard error."""
    dropped: int = 0
    """The number of programs whose dumps were removed."""


def report_run(outcome: RunOutcome, page: Path | None) -> list[str]:
    """The lines of the report; also writes the page, replacing an existing one."""
    programs = _programs_of(outcome)
    oom = find_oom(outcome.tail)
    if not programs:
        problem = "no program was compiled, or the command sets XLA_FLAGS of its own"
        return [f"{HEAD} XLA wrote no dump: {problem}"]
    lines = _draw_programs(programs, outcome.dropped)
    if oom is None:
        return [*lines, *_write_page(programs[0], page)]
    found = match_failure(oom.failure, programs)
    if found is None:
        note = describe_unknown(oom.failure, len(programs) + outcome.dropped)
        return [*lines, *describe_verdict(oom.verdict, note).splitlines()]
    program, match = found
    try:
        note = describe_failure(program.explain(), oom.failure, match.reason, page)
    except HlomemError as error:
        note = f"{HEAD} the dump of {program.module_name} cannot be read: {error}"
    return [*lines, *describe_verdict(oom.verdict, note).splitlines()]


def _programs_of(outcome: RunOutcome) -> list[DumpedProgram]:
    """The command's programs with readable dumps, largest first."""
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
    small = sum(program.size < _WORTH_LISTING * programs[0].size for program in programs)
    most = len(programs) - small if small > 1 else len(programs)
    lines += draw_list([program.sized for program in programs], min(TOP, most))
    if dropped:
        lines.append(f"{'':>12}  and {dropped} smaller ones, whose dumps exceeded the disk limit")
    largest, *others = programs
    constants = sum(program.constants for program in others)
    words = (
        f"must fit together: {format_bytes(largest.size)} while {largest.sized.module.title} runs"
    )
    if constants:
        words += f", plus {format_bytes(constants)} of constants of the others while loaded"
    return [*lines, visible(words)]


def _write_page(program: DumpedProgram, page: Path | None) -> list[str]:
    if page is None:
        return []
    try:
        program.explain().write_page(page, force=True)
    except HlomemError as error:
        return [f"no page: {error}"]
    return [f"page of {visible(program.sized.module.title)}: {visible(str(page.resolve()))}"]
