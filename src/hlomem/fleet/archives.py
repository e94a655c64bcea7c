"""Unpacks tar and zip archives, which may be hostile, into a temporary folder."""

from __future__ import annotations

import errno
import gzip
import io
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple

from hlomem.base.errors import InputError
from hlomem.base.scratch import scratch_folder
from hlomem.base.source import visible
from hlomem.fleet.storage import FileEntry, is_address, local_path, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_GROWTH = 100
_ALWAYS_ALLOWED = 64 << 20
_PIECE = 1 << 20
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, LZMAError, EOFError)
_ODD = (OSError, ValueError, RuntimeError)
"""Names the disk does not take; sparse maps of tar; encryption and methods of zip."""


class _Member(NamedTuple):
    name: str
    size: int
    content: IO[bytes]


@contextmanager
def unpacked(archive: FileEntry, limit: int) -> Iterator[tuple[str, list[FileEntry]]]:
    """A folder with an archive's files, and their entries with the archive's stamp."""
    with scratch_folder("hlomem-archive-") as folder:
        try:
            files = list(_unpack(archive, Path(folder), limit))
        except (*_DAMAGE, *_ODD) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise
            kind = "damaged archive" if isinstance(error, _DAMAGE) else "cannot be unpacked"
            words = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise InputError(f"{visible(archive.path)}: {kind}: {visible(words)}") from error
        yield folder, files


def _unpack(archive: FileEntry, folder: Path, limit: int) -> Iterator[FileEntry]:
    left = max(_ALWAYS_ALLOWED, _MAX_GROWTH * archive.size)
    for member in _members(archive):
        path = _path_of(folder, member.name)
        if path is None:
            continue
        left -= member.size
        if member.size > limit or left < 0:
            what = f"`{visible(member.name)}` is beyond the limit of inputs"
            raise InputError(f"{visible(archive.path)}: {what} (--max-input), or of {_MAX_GROWTH}"
                             " times the archive in all")  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        _copy(member, path)
        yield FileEntry(path.as_posix(), member.size, archive.stamp)


def _copy(member: _Member, path: Path) -> None:
    """Write no more than a member claims to have."""
    left = member.size
    with path.open("wb") as file:
        while left and (piece := member.content.read(min(left, _PIECE))):
            file.write(piece)
            left -= len(piece)


def _path_of(folder: Path, name: str) -> Path | None:
    """The path of a member in a folder; None for unsafe names and conflicts."""
    parts = [
        part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", ".")
    ]
    if not parts or ".." in parts or "\0" in name or ":" in parts[0]:
        return None
    path = folder.joinpath(*parts)
    return None if path.exists() or any(parent.is_file() for parent in path.parents) else path


def _members(archive: FileEntry) -> Iterator[_Member]:
    if archive.name.lower().endswith(".zip"):
        with _opened(archive) as file, zipfile.ZipFile(file) as packed:
            for info in packed.infolist():
                if not info.is_dir():
                    with packed.open(info) as content:
                        yield _Member(info.filename, info.file_size, content)
        return
    with _opened(archive) as file, tarfile.open(fileobj=file, mode="r:*") as tape:
        for entry in tape:
            plain = tape.extractfile(entry) if entry.isreg() else None
            if plain is not None:
                yield _Member(entry.name, entry.size, plain)
        _read_to_end(tape, archive)


def _read_to_end(tape: tarfile.TarFile, archive: FileEntry) -> None:
    """Reads what a packed tar has after its last member: checksums stand there."""
    left = max(_ALWAYS_ALLOWED, _MAX_GROWTH * archive.size)
    while left > 0 and tape.fileobj and (piece := tape.fileobj.read(_PIECE)):
        left -= len(piece)


def _opened(archive: FileEntry) -> IO[bytes]:
    if is_address(archive.path):
        return io.BytesIO(read_bytes(archive.path))
    try:
        return local_path(archive.path).open("rb")
    except OSError as error:
        raise InputError(f"{visible(archive.path)}: {error.strerror or error}") from error
