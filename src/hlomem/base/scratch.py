"""Temporary folders that go away with their process, even if it is killed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from os import close, pipe
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_REMOVE = 'cat >/dev/null; rm -rf -- "$1"'
"""Of a shell that outlives this process: its input ends once no process holds the other end."""


class Cleaner(NamedTuple):
    """Removes a folder once every process that holds `alive` has ended."""

    alive: int
    """A descriptor; processes that inherit it keep the folder."""
    shell: subprocess.Popen[bytes] | None

    def stop(self) -> None:
        """The folder is removed already, or is to stay."""
        close(self.alive)
        if self.shell is not None:
            self.shell.terminate()
            self.shell.wait()


def start_cleaner(folder: str) -> Cleaner:
    """A cleaner of a folder; where there is no shell, a kill leaves the folder."""
    reading, alive = pipe()
    try:
        return Cleaner(alive, _start_shell(folder, reading))
    finally:
        close(reading)


def _start_shell(folder: str, reading: int) -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(  # noqa: S603 - our own words
            ["/bin/sh", "-c", _REMOVE, "sh", folder],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        return None


@contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """A temporary folder, removed at the end, also if this process is killed."""
    folder = tempfile.mkdtemp(prefix=prefix)
    cleaner = start_cleaner(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        cleaner.stop()
