"""The machine of a dump or module: given, or inferred from marks and sizes, with a reason."""

from __future__ import annotations

import re
from functools import cache, partial
from os.path import basename
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.errors import HlomemError
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
"""Above this share of wrong sizes, the machine is wrong, not the sizes."""
_PIECES = 32
_PIECE = 8192
"""The number and length of pieces of a program that are searched first."""
_LAST_VALUES = 300
_VALUE_PIECE = 2000
"""The number of values of a dump that are searched first, and the searched length of each."""
_PRINTED_BY_XLA = "entry_computation_layout="
"""In the first line of modules that XLA prints; hand-written ones omit it."""


class MachineGuess(Struct, frozen=True):
    machine: Machine
    reason: str
    """Empty if it was given."""
    explains_sizes: bool = True
    """Whether nearly all sizes are right for it, so that other sizes are errors."""


class MachineCandidates(Struct, frozen=True):
    machines: tuple[Machine, ...]
    reason: str
    """Empty if the platform is unknown."""


def size_on(machine: Machine, placed: PlacedValue) -> int | None:
    """The bytes of a value's shape; None if unknown."""
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
    """The unpadded bytes of a shape with 8-byte pointers, as XLA counts at the peak."""
    shape = parse_shape_or_none(text)
    try:
        return None if shape is None else unpadded_size(shape, _POINTER_SIZE)
    except HlomemError:
        return None


def choose_machine(joined: JoinedDump, given: Machine | None) -> MachineGuess:
    if given is not None:
        return MachineGuess(_as_of_era(given, joined), "")
    fitting = guess_for_dump(joined)
    best, reason = fitting.machines[0], fitting.reason
    machine = _as_of_era(best, joined)
    if machine != best:
        reason += ", its format is old"
    wrong = (1 - _share_explained(joined, machine)) * len(joined.placed)
    return MachineGuess(machine, reason, wrong <= max(2, _MAX_WRONG_SHARE * len(joined.placed)))


def guess_for_dump(joined: JoinedDump) -> MachineCandidates:
    platform, reason = platform_of_dump(joined.dump)
    machines = machines_of(platform)
    if len(machines) == 1:
        return MachineCandidates(machines, reason)
    score_of = {machine.name: _chip_score(joined, machine) for machine in machines}
    best = max(score_of.values())
    return MachineCandidates(tuple(m for m in machines if score_of[m.name] == best), reason)


def platform_of_dump(dump: Dump) -> tuple[str, str]:
    """The platform by a mark, XLA's file name, or the program next to a dump; and the reason."""
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
    """The platform in the names of a dump's files; None if they have none."""
    for name in (dump.name, *(part.name for part in dump.parts)):
        if (named := _platform_of_name(basename(name))) is not None:
            return named[0]
    return None


def _printed_text(dump: Dump) -> str:
    allocations = dump.assignment.allocations if dump.assignment else ()
    shapes = {value.shape for allocation in allocations for value in allocation.values}
    values = dump.values.values if dump.values else ()
    printed = {value.name: value.instruction for value in values}
    return "\n".join((*shapes, *printed.values()))


def _program_text(dump: Dump) -> str:
    try:
        return "" if dump.module is None else dump.module.searchable_text
    except HlomemError:
        return ""


def _find_mark(whole: Callable[[], str], part: str) -> tuple[str, str] | None:
    """The platform whose mark is in a text, usually in a part of it, and the mark as a reason."""
    platforms = [platform for kind in _marking_platforms() for platform in kind]
    likely = next(
        (
            platform
            for platform in platforms
            if any(mark.is_in(part) for mark in _marks_of(platform).texts)
        ),
        None,
    )
    whole = cache(whole)
    for platform in platforms if likely is None else (likely,):
        for mark in _marks_of(platform).texts:
            if mark.is_in(part) or mark.is_in(whole()):
                return platform, mark.says
    return None


def _pieces(text: str) -> str:
    """Pieces from all over a program, as long sections may have no mark."""
    if len(text) <= _PIECES * _PIECE:
        return text
    starts = range(0, len(text), len(text) // _PIECES)
    return "\n".join([text[start : start + _PIECE] for start in starts])


def _marking_platforms() -> tuple[list[str], list[str]]:
    """The platforms whose compilers always leave a mark, and the others."""
    may_be_bare = [platform for platform in PLATFORMS if _marks_of(platform).absent_says]
    return [platform for platform in PLATFORMS if platform not in may_be_bare], may_be_bare


def _marks_of(platform: str) -> Marks:
    machine = platform_machine(platform)
    assert machine is not None
    return machine.marks


def _unmarked() -> tuple[str, str]:
    """The platform of programs without marks, and the reason."""
    return next(
        (platform, says) for platform in PLATFORMS if (says := _marks_of(platform).absent_says)
    )


def _as_of_era(machine: Machine, joined: JoinedDump) -> Machine:
    """A machine as of the oldest release that writes a dump's format."""
    era = joined.dump.eras[0]
    if era.jaxlib is None:
        return machine
    return options_for(machine, releases_of(era, machine.package)[-1]).machine


def _chip_score(joined: JoinedDump, chip: Machine) -> tuple[float, int]:
    """The share of fitting sizes, then the number of allocations in its fast memory."""
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
    """The possible machines of a module; `platform` and `chip` may be given.

    Modules compiled for a GPU or TPU always have a mark, so one without is for the CPU; a text that
    XLA did not print may be for any machine.
    """
    reason, file = "", basename(path)
    if not platform:
        platform, reason, named = _platform_of_module(module, file)
        chip = chip or named
    if not platform:
        return MachineCandidates(
            tuple(m for platform in PLATFORMS for m in machines_of(platform)), ""
        )
    if chip:
        return MachineCandidates((find_machine(platform, chip),), reason)
    return _chips_of_module(module, file, machines_of(platform), reason)


def _platform_of_module(module: HloModule, file: str) -> tuple[str, str, str]:
    """The platform, the reason and, if the file's name has it, the chip."""
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
        return platform, f"{reason}, and nothing indicates another machine", ""
    return "", "", ""


def _platform_of_name(file: str) -> tuple[str, str] | None:
    """The platform, and sometimes the chip, in XLA's file name."""
    for platform in PLATFORMS:
        pattern = _marks_of(platform).file_names
        match = re.search(pattern, file) if pattern else None
        if match is not None:
            return platform, match.groupdict().get("chip") or ""
    return None


def _chips_of_module(
    module: HloModule, file: str, machines: tuple[Machine, ...], reason: str
) -> MachineCandidates:
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
