"""Files that are written whole or not at all.

Each is written under a temporary name beside its place and moved there when all are complete, so
that a full disk or a kill leaves the old file or the new one, never half of one. A link in the way
is replaced, not followed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hlomem.errors import CommandError, InputError
from hlomem.source import visible

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_files(folder: Path, data_by_name: Mapping[str, bytes], *, force: bool = False) -> None:
    """Writes files into a folder, made if need be; existing ones only with `force`."""
    for name in data_by_name:
        if not name or name != Path(name).name:
            raise CommandError(f"`{visible(name)}` is not the name of a file")
        if not force and os.path.lexists(folder / name):
            where = visible(str(folder / name))
            raise CommandError(f"{where} exists; give --force to overwrite it")
    temporary: dict[str, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in data_by_name.items():
            temporary[name] = _write_temporary(folder, name, data)
        for name, path in temporary.items():
            path.replace(folder / name)
    except OSError as error:
        where = visible(str(error.filename or folder))
        raise InputError(f"{where}: {error.strerror or error}") from error
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)


def _write_temporary(folder: Path, name: str, data: bytes) -> Path:
    path = folder / f".{name[:50]}.{os.urandom(8).hex()}"
    try:
        with path.open("xb") as file:
            file.write(data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path
