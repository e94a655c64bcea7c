"""Files that are written whole or not at all, and text for standard output.

Each file is written under a temporary name beside its place and moved there when all are complete,
so that a full disk or a kill leaves the old file or the new one, never half of one; what a kill may
leave behind is a `.NAME.….tmp`. A link in the way is replaced, not followed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hlomem.base.errors import CommandError, InputError
from hlomem.base.source import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def write_text(text: str) -> None:
    """Writes a text to standard output, byte for byte; to a terminal, what is safe to see."""
    if sys.stdout.isatty():
        text = visible_lines(text)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


def write_files(
    folder: Path, pieces_by_name: Mapping[str, Iterable[bytes]], *, force: bool = False
) -> None:
    """Writes files into a folder, made if need be; existing ones only with `force`.

    What is in a file comes in pieces, each of which may be made when it is asked for.
    """
    for name in pieces_by_name:
        if not name or "\0" in name or name != Path(name).name:
            raise CommandError(f"`{visible(name)}` is not the name of a file")
        if not force and os.path.lexists(folder / name):
            raise _exists(folder / name)
    temporary: dict[str, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, pieces in pieces_by_name.items():
            temporary[name] = _write_temporary(folder, name, pieces)
        for name, path in temporary.items():
            _move(path, folder / name, force=force)
    except OSError as error:
        where = visible(str(error.filename or folder))
        raise InputError(f"{where}: {error.strerror or error}") from error
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)


def _exists(path: Path) -> CommandError:
    return CommandError(f"{visible(str(path))} exists; give --force to overwrite it")


def _write_temporary(folder: Path, name: str, pieces: Iterable[bytes]) -> Path:
    path = folder / f".{name[:50]}.{os.urandom(8).hex()}.tmp"
    try:
        with path.open("xb") as file:  # fails if anything is there, a link included
            file.writelines(pieces)
    except FileExistsError:
        raise
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _move(path: Path, target: Path, *, force: bool) -> None:
    if force:
        path.replace(target)
        return
    try:
        target.hardlink_to(path)  # unlike a rename, fails if somebody else was faster
    except FileExistsError:
        raise _exists(target) from None
    except OSError:  # a file system without links
        path.replace(target)
