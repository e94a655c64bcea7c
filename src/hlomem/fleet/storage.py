"""Local files, and remote ones through fsspec; a stamp changes with a file."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.atomic_files import write_files
from hlomem.base.errors import CommandError, InputError
from hlomem.base.source import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://")
_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "version_id")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


class FileEntry(NamedTuple):
    path: str
    size: int
    stamp: str
    """Changes with the file."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def is_address(path: str) -> bool:
    found = _ADDRESS.match(path)
    return found is not None and found[1] != "file"


def local_path(path: str) -> Path:
    """A local path, given as it is or as file://…"""
    return Path(path.removeprefix("file://"))


def list_files(
    path: str, *, but: str = "", refused: Callable[[str, str], None] | None = None
) -> Iterator[FileEntry]:
    """The files below a path by name, but not in folders with a file `but` or `refused` ones."""
    if is_address(path):
        yield from _list_remote(path, but)
        return
    local = local_path(path)
    if not local.is_dir():
        yield _entry(local)
        return

    def refuse(error: OSError) -> None:
        where, why = str(error.filename), error.strerror or str(error)
        if refused is None or Path(where) == local:
            raise InputError(f"{visible(where)}: {why}") from error
        refused(where, why)

    for folder, folders, names in os.walk(local, onerror=refuse):
        folders.sort()
        if but and but in names:
            folders.clear()
            continue
        paths = [Path(folder, name) for name in sorted(names)]
        try:
            yield from [_entry(path) for path in paths if path.is_file()]
        except PermissionError as error:  # it may be listed, but not entered
            refuse(PermissionError(error.errno, error.strerror, folder))


def list_beside(path: str) -> list[FileEntry]:
    if not is_address(path):
        local = local_path(path)
        if not local.is_file():
            return [_entry(local)]
        return [_entry(found) for found in sorted(local.parent.iterdir()) if found.is_file()]
    files, name = _file_system(path)
    protocol, folder = path.partition("://")[0], name.rpartition("/")[0]
    found = [info for info in files.ls(folder, detail=True) if info.get("type") == "file"]
    return [FileEntry(f"{protocol}://{info['name']}", *_size_and_stamp(info)) for info in found]


def _entry(path: Path) -> FileEntry:
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{visible(str(path))}: {reason or error}") from error
    return FileEntry(path.as_posix(), status.st_size, f"{status.st_size}-{status.st_mtime_ns}")


def _list_remote(path: str, but: str) -> Iterator[FileEntry]:
    files, root = _file_system(path)
    protocol = path.partition("://")[0]
    try:
        files.invalidate_cache()  # others may have written there
        found = files.find(root, detail=True)
        details = found or {root: files.info(root)}
    except Exception as error:  # every storage has errors of its own
        raise InputError(f"{visible(path)}: {visible(str(error)) or 'not found'}") from error
    passed_over = {
        name.rpartition("/")[0] + "/" for name in details if but and name.rpartition("/")[2] == but
    }
    for name in sorted(details):
        if details[name].get("type") == "file" and not name.startswith(tuple(passed_over)):
            yield FileEntry(f"{protocol}://{name}", *_size_and_stamp(details[name]))


def _size_and_stamp(info: dict[str, Any]) -> tuple[int, str]:
    size = int(info.get("size") or 0)
    tag = next((str(info[key]) for key in _TAGS if info.get(key)), "")
    time = next((str(info[key]) for key in _TIMES if info.get(key)), "")
    return size, f"{size}-{tag or time}"


def _file_system(path: str) -> tuple[Any, str]:
    core = require("fsspec.core", f"reading {visible(path)}")
    try:
        files, root = core.url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise CommandError(f"{visible(path)}: {visible(str(error))}") from error
    return files, str(root)


def read_bytes(path: str, limit: int | None = None) -> bytes:
    """The raw bytes of a file, or its first `limit` bytes."""
    try:
        if is_address(path):
            files, name = _file_system(path)
            return bytes(
                files.cat_file(name, start=0, end=limit) if limit else files.cat_file(name)
            )
        with local_path(path).open("rb") as file:
            return file.read(-1 if limit is None else limit)
    except (InputError, CommandError, MemoryError):
        raise
    except Exception as error:  # every storage has errors of its own
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(f"{visible(path)}: {visible(reason)}") from error


def write_bytes(path: str, pieces: Iterable[bytes]) -> None:
    """Write or replace a file, whole or not at all."""
    if not is_address(path):
        local = local_path(path)
        write_files(local.parent, {local.name: pieces}, force=True)
        return
    files, name = _file_system(path)
    try:
        files.pipe_file(name, b"".join(pieces))
        files.invalidate_cache()
    except Exception as error:  # every storage has errors of its own
        raise InputError(f"{visible(path)}: {visible(str(error))}") from error


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    if not is_address(path):
        local_path(path).unlink(missing_ok=True)
        return
    files, name = _file_system(path)
    with suppress(FileNotFoundError):
        files.rm_file(name)
    files.invalidate_cache()


def exists(path: str) -> bool:
    if not is_address(path):
        return local_path(path).exists()
    files, name = _file_system(path)
    files.invalidate_cache()
    return bool(files.exists(name))


def join(folder: str, *names: str) -> str:
    return "/".join([folder.rstrip("/") or "/", *names])


def require(package: str, what_for: str) -> Any:
    """A package of the extra `fleet`, or an error that says how to install it."""
    try:
        return import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        problem = f"{what_for} needs {name}, which is not installed"
        raise CommandError(f"{problem}: pip install 'hlomem[fleet]'") from error
