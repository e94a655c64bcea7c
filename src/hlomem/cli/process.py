"""Messages of commands beside their output, and things they keep until the process ends."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from hlomem.base.paths import plain_path
from hlomem.base.source import visible, visible_lines

_kept: list[object] = []


def keep(thing: object) -> None:
    """Keeps what a command made until the process ends, which frees it faster than we do."""
    _kept.append(thing)


def forget() -> None:
    """Drops what was kept, for a process that goes on."""
    _kept.clear()


def say(message: str) -> None:
    """Prints to standard error what is safe to see; nobody may be there to read it."""
    with suppress(OSError):
        sys.stderr.write(f"{visible_lines(message)}\n")
        sys.stderr.flush()


def say_new_folder(folder: str | os.PathLike[str]) -> None:
    """Says that an output's folder is not there yet and will be made."""
    if not os.path.exists(folder):  # noqa: PTH110 - see `hlomem.base.paths`
        say(f"makes the folder {visible(plain_path(folder))}")
