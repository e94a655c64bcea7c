"""Finds the units below the paths of a scan; those of archives carry their bytes to workers."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.fleet.archives import unpacked
from hlomem.fleet.schema import MARKER
from hlomem.fleet.storage import (
    FileEntry,
    is_address,
    list_beside,
    list_files,
    local_path,
    read_bytes,
)
from hlomem.fleet.units import SNIFFED, Unit, group_folders, is_archive, unit_of_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PACKED = 4096
"""Bytes of a gzip file that are enough to sniff its content."""


_ODD_NAME = "not read, since its name is not UTF-8"


class UnitError(Exception):
    """A unit that is known to be unreadable before a worker tries."""

    def __init__(self, unit: Unit, reason: str) -> None:
        super().__init__(reason)
        self.unit = unit


def find_units(
    path: str, is_known: Callable[[Unit], bool], limit: int
) -> Iterator[Unit | UnitError]:
    """The units below a path; an archive follows its units, or comes alone if it is known."""
    shown = path if is_address(path) else str(local_path(path).resolve())
    if not is_address(path) and not local_path(path).exists():
        raise InputError(f"{visible(path)}: no such file or folder")
    problems: list[UnitError] = []

    def refuse(folder: str, reason: str) -> None:
        entry = FileEntry(folder, 0, "")
        problems.append(UnitError(_single(entry, "folder", shown), f"{folder}: {reason}"))

    entries, odd = _with_plain_names(list_files(shown, but=MARKER, refused=refuse))
    problems += [
        UnitError(_single(FileEntry(name, 0, ""), "folder", shown), _ODD_NAME) for name in odd
    ]
    archives = [entry for entry in entries if is_archive(entry.name)]
    if len(entries) == 1 and entries[0].path == shown.rstrip("/"):
        if not archives:
            yield unit_at(entries[0].path)
    else:
        yield from group_folders(entries, shown, begins)
    yield from problems
    for archive in archives:
        yield from _units_of_archive(archive, shown, is_known, limit)


def _with_plain_names(entries: Iterable[FileEntry]) -> tuple[list[FileEntry], list[str]]:
    """Files whose paths are text, and the first part of each other path that is not, shown."""
    plain, odd = [], dict[str, None]()
    for entry in entries:
        try:
            entry.path.encode()
            plain.append(entry)
        except UnicodeEncodeError as error:
            length = entry.path.find("/", error.start)
            odd[visible(entry.path[: length if length >= 0 else None])] = None
    return plain, list(odd)


def _single(entry: FileEntry, kind: str, root: str) -> Unit:
    prefix = root.rstrip("/") + "/"
    path = entry.path.removeprefix(prefix) if entry.path != root else entry.name
    return Unit(kind=kind, name=entry.name, files=(entry,), path=path)  # type: ignore[arg-type]


def unit_at(path: str) -> Unit:
    """The unit of a file, together with the other files of its dump."""
    entries = list_beside(path)
    for unit in group_folders(entries, path.rpartition("/")[0], begins):
        if path in [file.path for file in unit.files]:
            return unit
    found = [entry for entry in entries if entry.path == path]
    if not found:
        raise InputError(f"{visible(path)}: no such file")
    return unit_of_file(found[0], begins)


def _units_of_archive(
    archive: FileEntry, root: str, is_known: Callable[[Unit], bool], limit: int
) -> Iterator[Unit | UnitError]:
    whole = _single(archive, "archive", root)
    if is_known(whole):
        yield whole
        return
    try:
        with unpacked(archive, limit) as (folder, found):
            files, odd = _with_plain_names(found)
            if odd:
                yield UnitError(
                    whole, f"{visible(archive.path)}: {_ODD_NAME}: {odd[0][len(folder) + 1 :]}"
                )
            for unit in group_folders(files, folder, begins):
                data = tuple(read_bytes(file.path) for file in unit.files)
                yield replace(unit, archive=archive.path, data=data)
    except InputError as error:
        yield UnitError(whole, str(error))
        return
    yield whole


def begins(entry: FileEntry) -> bytes:
    """The first bytes of a file, unpacked; empty if it cannot be read."""
    try:
        if not entry.name.endswith(".gz"):
            return read_bytes(entry.path, SNIFFED)
        if not is_address(entry.path):
            with gzip.open(local_path(entry.path)) as file:
                return file.read(SNIFFED)
        return zlib.decompressobj(31).decompress(read_bytes(entry.path, _PACKED), SNIFFED)
    except (InputError, OSError, EOFError, zlib.error):
        return b""
