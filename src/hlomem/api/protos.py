"""Programs in protos, profiles, caches and executables: listed, and chosen by name or size."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from hlomem.assign.footprint import footprint, main_space
from hlomem.base.errors import CommandError, InputError
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.dump.file_names import author_name
from hlomem.proto.programs import open_programs
from hlomem.proto.sniff import is_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule

_MAX_LISTED = 20
_SNIFFED = 4096
_CACHE_ENTRY = re.compile(r".*-cache|.+-[0-9a-f]{64}", re.DOTALL)
"""The name of a cache entry: program and key, since 0.4.36 with the suffix `-cache`."""
_PROTO_ENDINGS = (".pb", ".pb.gz")


class ProtoProgram(Struct, frozen=True, dict=True):
    """A program of a file, not opened yet."""

    name: str
    """The user's name for it, with `#2` and so on if it repeats."""
    module_name: str
    """XLA's name for it, with `jit_`."""
    where: str
    module: bytes
    assignment: Any
    """The BufferAssignmentProto; None without a plan."""

    @property
    def full_name(self) -> str:
        """The module's name, numbered as `name` is."""
        return self.module_name + self.name.removeprefix(author_name(self.module_name))

    @cached_property
    def size(self) -> int | None:
        """The bytes it needs in its main memory space; None without a plan."""
        if self.assignment is None:
            return None
        allocations = self.assignment.buffer_allocations
        return footprint(allocations, main_space(allocations))

    def open_module(self) -> HloModule:
        from hlomem.proto.module import read_module  # noqa: PLC0415 - start-up

        return read_module(self.module, self.where)

    def open(self) -> Dump | HloModule:
        """The dump of its plan, or else the program."""
        module = self.open_module()
        if self.assignment is None:
            return module
        from hlomem.proto.dump import make_dump  # noqa: PLC0415 - start-up

        try:
            return make_dump(module, self.assignment)
        except InputError as error:
            raise InputError(f"{visible(self.where)}: {error}") from error


def programs_in(data: bytes, name: str, limit: int) -> list[ProtoProgram]:
    """The programs of a file, largest first."""
    found = [
        ProtoProgram(program.name, program.name, name, program.module, program.assignment)
        for program in open_programs(data, name, limit)
    ]
    return _numbered(_planned_ones(found))


def programs_in_folder(
    folder: Path, read: Callable[[Path], bytes], limit: int
) -> list[ProtoProgram]:
    """The programs of a folder of protos, profiles or cache entries, unreadable ones skipped."""
    found: list[ProtoProgram] = []
    problem: InputError | None = None
    for path in _files_in(folder):
        try:
            found += programs_in(read(path), str(path), limit)
        except InputError as error:
            problem = problem or error
    if not found and problem is not None:
        raise problem
    return _numbered(_planned_ones(found))


def _files_in(folder: Path) -> list[Path]:
    """The entries of a cache, else the protos in a folder, else the profiles below it."""
    try:
        names = sorted(folder.iterdir())
        return (
            [path for path in names if _CACHE_ENTRY.fullmatch(path.name)]
            or [path for path in names if path.name.endswith(_PROTO_ENDINGS)]
            or sorted(folder.glob("**/*.xplane.pb*"))
        )
    except OSError as error:
        raise InputError(f"{visible(str(folder))}: {error.strerror or error}") from error


def _planned_ones(programs: list[ProtoProgram]) -> list[ProtoProgram]:
    """The programs with a plan, if any: many files contain programs at several stages."""
    planned = [program for program in programs if program.assignment is not None]
    return planned or programs


def _numbered(programs: list[ProtoProgram]) -> list[ProtoProgram]:
    """Largest first; repeated names get a number."""
    counts: dict[str, int] = {}
    numbered = []
    for program in sorted(
        programs, key=lambda one: -1 if one.size is None else one.size, reverse=True
    ):
        name = author_name(program.module_name)
        counts[name] = counts.get(name, 0) + 1
        shown = name if counts[name] == 1 else f"{name}#{counts[name]}"
        numbered.append(replace(program, name=shown))
    return numbered


def choose_program(
    programs: Sequence[ProtoProgram], wanted: str | None, where: str
) -> tuple[ProtoProgram, str]:
    """The largest program, or the one of a (partial) name, and the reason."""
    if wanted is None:
        many = len(programs) > 1
        return programs[0], f"the largest of {len(programs)} programs" if many else ""
    exact = [program for program in programs if wanted in (program.name, program.full_name)]
    found = exact or [program for program in programs if wanted in program.full_name]
    if len(found) == 1:
        return found[0], ""
    many_named = f"{len(found)} programs in {visible(where)} match `{visible(wanted)}`"
    lines = "\n".join(list_programs(found or programs))
    raise CommandError(f"{many_named}; choose one with --module:\n{lines}")


def list_programs(programs: Sequence[ProtoProgram]) -> list[str]:
    lines = []
    for program in programs[:_MAX_LISTED]:
        amount = "no plan" if program.size is None else format_bytes(program.size)
        lines.append(f"{amount:>12}  {visible(program.name)}")
    if len(programs) > _MAX_LISTED:
        lines.append(f"{'':>12}  and {len(programs) - _MAX_LISTED} smaller")
    return lines


def open_chosen(
    programs: Sequence[ProtoProgram], wanted: str | None, where: str, *, as_program: bool
) -> Dump | HloModule:
    """The program chosen by `choose_program`, opened; `as_program` ignores its plan."""
    program, reason = choose_program(programs, wanted, where)
    if as_program:
        return program.open_module()
    opened = program.open()
    if program.assignment is None:
        return opened
    from hlomem.dump.dump import Dump  # noqa: PLC0415 - for the type checker

    assert isinstance(opened, Dump)
    return replace(opened, chosen=reason)


def holds_programs(path: Path) -> bool:
    """Whether a file is binary; False if it cannot be opened."""
    try:
        with path.open("rb") as file:
            return is_binary(file.read(_SNIFFED))
    except (OSError, ValueError):
        return False
