"""Messages on standard error, and objects kept alive until the process ends."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from hlomem.base.source import visible, visible_lines

_kept: list[object] = []


def keep(thing: object) -> None:
    """Keep an object until the process ends, which frees it faster."""
    _kept.append(thing)


def forget() -> None:
    _kept.clear()


def say(message: str) -> None:
    """Print a message to standard error, with control characters escaped."""
    with suppress(OSError):
        sys.stderr.write(f"{visible_lines(message)}\n")
        sys.stderr.flush()


def say_new_folder(folder: str | os.PathLike[str]) -> None:
    if not os.path.exists(folder):  # noqa: PTH110 - starts without pathlib
        say(f"creating folder {visible(os.fspath(folder))}")
