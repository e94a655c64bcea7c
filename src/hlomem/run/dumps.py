"""The folder for XLA's dumps while a command runs, limited in size and removed afterwards.

XLA writes many files per program, of which five are about memory; the others are removed once they
are complete, and beyond the limit the dumps of small programs as well. A temporary folder is
removed at the end; if this process is killed, by a shell that waits for it and the command.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hlomem.api.folder import list_modules, measure_all
from hlomem.api.load import read_source
from hlomem.base.errors import CommandError, InputError
from hlomem.base.scratch import Cleaner, start_cleaner
from hlomem.base.source import visible
from hlomem.dump.file_names import FILE_NAMES

if TYPE_CHECKING:
    from types import TracebackType

MAX_DISK = "4GiB"
"""The default limit of disk space."""
_LEFT = 0.75
"""Fraction of the limit to shrink to once it is reached."""
_LATEST = 16
"""The latest programs, which are never removed: one of them may fail."""
_INTERVAL = 0.5
_SETTLED = 2.0
"""Seconds after which an unchanged file is complete."""
_KEPT = (*{name.suffix for name in FILE_NAMES.values()}, "after_optimizations.txt")


class DumpFolder:
    """A dump folder maintained by a thread; a context manager."""

    def __init__(self, keep: Path | None, max_bytes: int) -> None:
        self.is_temporary = keep is None
        self._is_new = keep is not None and not keep.exists()
        self.path = _make_temporary() if keep is None else _make_kept(keep)
        self.dropped = 0
        """The number of programs whose dumps were removed."""
        self.alive = -1
        """A descriptor for the command to inherit: the folder stays while it is open."""
        self._max_bytes = max_bytes
        self._cleaner: Cleaner | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look_after, daemon=True)

    def __enter__(self) -> DumpFolder:
        if self.is_temporary:
            self._cleaner = start_cleaner(str(self.path))
            self.alive = self._cleaner.alive
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.settle()
        if self.is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        elif self._is_new and not any(self.path.iterdir()):
            self.path.rmdir()
        if self._cleaner is not None:
            self._cleaner.stop()

    def settle(self) -> None:
        """Stop the thread after a final cleanup: everything is written."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._thread.join()
            self._tidy(time.time())

    def _look_after(self) -> None:
        while not self._stopped.wait(_INTERVAL):
            self._tidy(time.time() - _SETTLED)

    def _tidy(self, before: float) -> None:
        """Remove complete files that are not about memory, then dumps beyond the limit."""
        size = 0
        for path in list(self.path.iterdir()):
            with suppress(OSError):  # it may be gone
                about = path.lstat()
                if path.name.endswith(_KEPT):
                    size += about.st_size
                elif about.st_mtime <= before:
                    _remove(path)
        if size > self._max_bytes:
            self._make_room(size - int(_LEFT * self._max_bytes))

    def _make_room(self, wanted: int) -> None:
        """Remove the programs that need least memory, except the latest."""
        modules = list_modules(self.path)
        modules.sort(key=lambda module: module.files[0].stat().st_mtime)
        for sized in reversed(measure_all(modules[:-_LATEST], read_source)):
            if wanted <= 0:
                return
            stem = sized.module.files[0].name.removesuffix(FILE_NAMES["assignment"].suffix)
            for path in self.path.glob(f"{_escape(stem)}*"):
                wanted -= path.stat().st_size
                _remove(path)
            self.dropped += 1


def _make_temporary() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="hlomem-run-")).resolve()
    except OSError as error:
        problem = f"no temporary folder for XLA's dumps: {error.strerror or error}"
        raise InputError(f"{problem}; set -o DIR or TMPDIR") from error


def _make_kept(folder: Path) -> Path:
    """A folder to keep, which must be new or empty since files in it are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CommandError(f"{visible(str(folder))} is not empty; give a new folder with -o")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{visible(str(folder))}: {error.strerror or error}") from error
    return folder.resolve()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _escape(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
