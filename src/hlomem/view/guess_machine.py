"""The machine a dump or a module is of: given, or inferred from what it shows.

Neither names its machine. In: a joined dump, or an HLO module; both are searched for the marks
that the files of `hlomem.machines` list (tiles, operation queues, calls of libraries). Out: the
machine and the reason. Among the chips of a dump those remain whose sizes fit most values; they
differ in the size of a tuple table and in the color of fast memory, and where a dump shows
neither, any of them gives the same answers. Of a module, all chips remain that nothing speaks
against, and sometimes nothing tells even the platform.
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import TYPE_CHECKING

from hlomem.base.errors import HlomemError
from hlomem.base.named_tuples import NamedTuple
from hlomem.base.paths import file_name
from hlomem.dump.eras import releases_of
from hlomem.hlo.padding import unpadded_size
from hlomem.machines.options import options_for
from hlomem.machines.registry import PLATFORMS, find_machine, machines_of, platform_machine
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.machine import Machine, Marks
    from hlomem.view.joined import JoinedDump, PlacedValue

_POINTER_SIZE = 8
_MAX_WRONG_SHARE = 0.2
"""The share of values whose sizes may be wrong before it is the machine that is."""
_PIECES = 32
_PIECE = 8192
"""The characters of each piece of a program that is searched first."""
_LAST_VALUES = 300
"""The number of values of a dump that are searched first: the last of the entry computation."""
_VALUE_PIECE = 2000
"""The characters of each that are searched: the tuple of all results has tens of thousands."""
_PRINTED_BY_XLA = "entry_computation_layout="
"""In the first line of every module that XLA prints; hand-written ones leave it out."""


class MachineGuess(NamedTuple):
    """A machine and how it is known."""

    machine: Machine
    reason: str
    """Empty when it was given."""
    explains_sizes: bool = True
    """Whether it gives the size of nearly every value, so that the others are wrong."""


class MachineCandidates(NamedTuple):
    """The machines a program may be for, and how they are known."""

    machines: tuple[Machine, ...]
    """Every machine that nothing speaks against."""
    reason: str
    """Empty where the platform cannot be told."""


def size_on(machine: Machine, placed: PlacedValue) -> int | None:
    """The bytes a value's shape takes; None where the shape does not say."""
    shape = parse_shape_or_none(placed.value.shape)
    if shape is None:
        return None
    if shape.is_tuple and placed.value.color == machine.far_table_color is not None:
        return 0
    try:
        return machine.size_of(shape)
    except HlomemError:
        return None


def unpadded_size_of(text: str) -> int | None:
    """The bytes of a shape without padding, with pointers of 8, as XLA counts at the peak."""
    shape = parse_shape_or_none(text)
    try:
        return None if shape is None else unpadded_size(shape, _POINTER_SIZE)
    except HlomemError:
        return None


def choose_machine(joined: JoinedDump, given: Machine | None) -> MachineGuess:
    """The machine a plan is for."""
    if given is not None:
        return MachineGuess(_at_its_time(given, joined), "")
    fitting = guess_for_dump(joined)
    best, reason = fitting.machines[0], fitting.reason
    machine = _at_its_time(best, joined)
    if machine != best:
        reason += ", its format is old"
    wrong = (1 - _share_explained(joined, machine)) * len(joined.placed)
    return MachineGuess(machine, reason, wrong <= max(2, _MAX_WRONG_SHARE * len(joined.placed)))


def guess_for_dump(joined: JoinedDump) -> MachineCandidates:
    """The machines a plan may be for: those whose sizes fit best."""
    platform, reason = platform_of_dump(joined.dump)
    machines = machines_of(platform)
    if len(machines) == 1:
        return MachineCandidates(machines, reason)
    scores = [_chip_score(joined, machine) for machine in machines]
    best = [
        machine for machine, score in zip(machines, scores, strict=True) if score == max(scores)
    ]
    return MachineCandidates(tuple(best), reason)


def platform_of_dump(dump: Dump) -> tuple[str, str]:
    """The platform of a dump and the reason; the one without marks where there are none.

    Where the dump itself has no mark, XLA's name for its file tells, or the program beside it.
    """
    always, _ = _marking_platforms()
    values = dump.values.values[-_LAST_VALUES:] if dump.values else ()
    last = "\n".join([value.instruction[:_VALUE_PIECE] for value in values])
    marked = _find_mark(partial(_printed_text, dump), last)
    if marked is not None and marked[0] in always:
        return marked
    if (named := platform_of_names(dump)) is not None:
        return named, "its file's name says so"
    if marked is None:
        program = _program_text(dump)
        marked = _find_mark(lambda: program, _pieces(program))
    return marked if marked is not None and marked[0] in always else _unmarked()


def platform_of_names(dump: Dump) -> str | None:
    """The platform in XLA's names for the files of a dump; None where they have none."""
    for name in (dump.name, *(part.name for part in dump.parts)):
        if (named := _platform_of_name(file_name(name))) is not None:
            return named[0]
    return None


def _printed_text(dump: Dump) -> str:
    """All shapes and instructions that a dump prints."""
    allocations = dump.assignment.allocations if dump.assignment else ()
    shapes = {value.shape for allocation in allocations for value in allocation.values}
    values = dump.values.values if dump.values else ()
    printed = {value.name: value.instruction for value in values}
    return "\n".join((*shapes, *printed.values()))


def _program_text(dump: Dump) -> str:
    """The text of the program beside a dump; empty where it cannot be read."""
    try:
        return "" if dump.module is None else dump.module.searchable_text
    except HlomemError:
        return ""


def _find_mark(whole: Callable[[], str], part: str) -> tuple[str, str] | None:
    """The platform whose mark is in a text, and what the surest mark says.

    No compiler leaves marks of two platforms, and most leave one on every other line: a part of the
    text tells the platform, and only where it does not all marks are looked for in the whole.
    """
    platforms = [platform for kind in _marking_platforms() for platform in kind]
    likely = next((platform for platform in platforms if _marks_in(part, platform)), None)
    whole = cache(whole)
    for platform in platforms if likely is None else (likely,):
        for mark in _marks_of(platform).texts:
            if mark.is_in(part) or mark.is_in(whole()):
                return platform, mark.says
    return None


def _pieces(text: str) -> str:
    """A part of a program: pieces from all over it, as long stretches may have no mark."""
    if len(text) <= _PIECES * _PIECE:
        return text
    starts = range(0, len(text), len(text) // _PIECES)
    return "\n".join([text[start : start + _PIECE] for start in starts])


def _marks_in(text: str, platform: str) -> bool:
    return any(mark.is_in(text) for mark in _marks_of(platform).texts)


def _marking_platforms() -> tuple[list[str], list[str]]:
    """The platforms whose compilers always leave a mark, and the others."""
    may_be_bare = [platform for platform in PLATFORMS if _marks_of(platform).absent_says]
    return [platform for platform in PLATFORMS if platform not in may_be_bare], may_be_bare


def _marks_of(platform: str) -> Marks:
    machine = platform_machine(platform)
    assert machine is not None
    return machine.marks


def _unmarked() -> tuple[str, str]:
    """The platform whose compiler need not leave a mark."""
    return next(
        (platform, says) for platform in PLATFORMS if (says := _marks_of(platform).absent_says)
    )


def _at_its_time(machine: Machine, joined: JoinedDump) -> Machine:
    """A machine as the oldest release that can have written a dump planned for it."""
    era = joined.dump.eras[0]
    if era.jaxlib is None:
        return machine
    return options_for(machine, releases_of(era, machine.package)[-1]).machine


def _chip_score(joined: JoinedDump, chip: Machine) -> tuple[float, int]:
    """The number of fitting sizes, then of allocations, even empty ones, in its fast memory."""
    in_fast = sum(allocation.color == chip.preset_color for allocation in joined.allocations)
    return (_share_explained(joined, chip), in_fast)


def _share_explained(joined: JoinedDump, machine: Machine) -> float:
    size_of: dict[str, int | None] = {}
    for placed in joined.placed:
        if placed.value.shape not in size_of:
            size_of[placed.value.shape] = size_on(machine, placed)
    fitting = sum(size_of[placed.value.shape] == placed.value.size for placed in joined.placed)
    return fitting / max(1, len(joined.placed))


# Modules


def guess_for_module(
    module: HloModule, path: str = "", platform: str = "", chip: str = ""
) -> MachineCandidates:
    """The machines a module may be for; `platform` and `chip` are as far as they are given.

    A module that XLA has compiled for a GPU or a TPU always has a mark, so that one without is for
    the CPU; a text that XLA did not print may be for any machine.
    """
    reason = ""
    if not platform:
        platform, reason, named = _platform_of_module(module, file_name(path))
        chip = chip or named
    if not platform:
        return MachineCandidates(
            tuple(m for platform in PLATFORMS for m in machines_of(platform)), ""
        )
    if chip:
        return MachineCandidates((find_machine(platform, chip),), reason)
    return _chips_of_module(module, file_name(path), machines_of(platform), reason)


def _platform_of_module(module: HloModule, file: str) -> tuple[str, str, str]:
    """The platform, the reason and, where the file's name has it, the chip."""
    text = module.searchable_text
    named = _platform_of_name(file)
    marked = _find_mark(lambda: text, _pieces(text))
    if marked is not None:
        chip = named[1] if named is not None and named[0] == marked[0] else ""
        return (*marked, chip)
    if named is not None:
        return named[0], "its file's name says so", named[1]
    if _PRINTED_BY_XLA in text.partition("\n")[0]:
        platform, reason = _unmarked()
        return platform, f"{reason}, and nothing else speaks for another machine", ""
    return "", "", ""


def _platform_of_name(file: str) -> tuple[str, str] | None:
    """The platform, and sometimes the chip, in a name that XLA gives to its files."""
    for platform in PLATFORMS:
        pattern = _marks_of(platform).file_names
        match = re.search(pattern, file) if pattern else None
        if match is not None:
            return platform, match.groupdict().get("chip") or ""
    return None


def _chips_of_module(
    module: HloModule, file: str, machines: tuple[Machine, ...], reason: str
) -> MachineCandidates:
    """The chips of a platform that a module may be for."""
    words = set(re.split(r"[^a-z0-9]+", file.lower()))
    named = [machine for machine in machines if machine.chip_name and machine.chip_name in words]
    if len(named) == 1:
        says = f"its file is called {file}"
        return MachineCandidates((named[0],), f"{reason}, {says}" if reason else says)
    marks = {
        mark: mark.is_in(module.searchable_text)
        for machine in machines
        for mark in machine.not_marks
    }
    left = [machine for machine in machines if not any(marks[mark] for mark in machine.not_marks)]
    said = [mark.says for mark, is_there in marks.items() if is_there]
    return MachineCandidates(tuple(left or machines), ", ".join(filter(None, (reason, *said))))
