"""Files that are written whole or not at all, and text for standard output.

Each file is written under a temporary name in its folder and renamed once all are complete: a full
disk or a kill leaves the old file or the new one, and at worst a stray `.NAME.….tmp`. An existing
link is replaced, not followed; a device or pipe (/dev/null) is written to. Importing `pathlib`
would make a small plan 5 % slower.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from os.path import basename, join
from typing import TYPE_CHECKING

from hlomem.base.errors import CommandError, InputError
from hlomem.base.source import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def write_text(text: str) -> None:
    """Writes a text to standard output, byte for byte; control characters escaped on a terminal."""
    if sys.stdout.isatty():
        text = visible_lines(text)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


def write_files(
    folder: str | os.PathLike[str],
    pieces_by_name: Mapping[str, Iterable[bytes]],
    *,
    force: bool = False,
) -> None:
    """Writes files, each from its pieces, into a folder; overwrites only with `force`."""
    folder = os.fspath(folder)
    devices: set[str] = set()
    for name in pieces_by_name:
        if name in ("", ".", "..") or "\0" in name or name != basename(name):
            raise CommandError(f"`{visible(name)}` is not the name of a file")
        if _is_device(join(folder, name)):
            devices.add(name)
        elif not force and os.path.lexists(join(folder, name)):
            raise _exists_error(join(folder, name))
    temporary: dict[str, str] = {}
    try:
        os.makedirs(folder, exist_ok=True)
        for name, pieces in pieces_by_name.items():
            if name in devices:
                with open(join(folder, name), "wb") as file:
                    file.writelines(pieces)
            else:
                temporary[name] = _write_temporary(folder, name, pieces)
        for name, path in temporary.items():
            _move(path, join(folder, name), force=force)
    except OSError as error:
        where = visible(str(error.filename or folder))
        raise InputError(f"{where}: {error.strerror or error}") from error
    finally:
        for path in temporary.values():
            _remove(path)


def _is_device(path: str) -> bool:
    """Whether a path leads to something other than a file or folder."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def refuse_existing(path: str | os.PathLike[str] | None, *, force: bool) -> None:
    """Raise before long work if its output file is there and may not be overwritten."""
    if path is not None and not force and os.path.exists(path):
        raise _exists_error(str(path))


def _exists_error(path: str) -> CommandError:
    return CommandError(f"{visible(path)} exists; give --force to overwrite it")


def _write_temporary(folder: str, name: str, pieces: Iterable[bytes]) -> str:
    path = join(folder, f".{name[:50]}.{os.urandom(8).hex()}.tmp")
    try:
        with open(path, "xb") as file:  # fails on any existing entry, links included
            file.writelines(pieces)
    except FileExistsError:
        raise
    except BaseException:
        _remove(path)
        raise
    return path


def _move(path: str, target: str, *, force: bool) -> None:
    if force:
        os.replace(path, target)
        return
    try:
        os.link(path, target)  # unlike a rename, fails if the target has appeared
    except FileExistsError:
        raise _exists_error(target) from None
    except OSError:  # a file system without links
        os.replace(path, target)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
