"""`hlomem.jax.captured`: every program JAX compiles in a block of code, with its memory.

Within a block JAX's compilation cache is a folder of ours, with program and plan of all that JAX
can store; `hlomem.jax.pass_.hook` also sees programs that do not fit or are not stored, which
hlomem plans. The two are joined by name and number of the module. The user's own cache is neither
read nor written, and all settings are restored.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, overload

from hlomem.api.load import MAX_BYTES
from hlomem.base.errors import HlomemError, InputError, UnknownNameError
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.jax.compiled_programs import CompiledProgram
from hlomem.jax.pass_ import hook
from hlomem.jax.pass_.log import logger
from hlomem.jax.pass_.register import require_jax
from hlomem.proto.programs import open_programs
from hlomem.proto.schema import parse_message

if TYPE_CHECKING:
    from hlomem.jax.pass_.hook import SeenModule

_SETTINGS: dict[str, Any] = {
    "jax_enable_compilation_cache": True,
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_compilation_cache_max_size": -1,
    "jax_compilation_cache_include_metadata_in_key": True,
}
"""Every program is stored, and one from another line is another program."""
_FOLDER = "jax_compilation_cache_dir"
_ENDING = "-cache"
_PREFIX = "hlomem-captured-"


class Compiles(Sequence[CompiledProgram]):
    """The programs compiled in a block, in the order of their compiles; complete when it ends."""

    def __init__(self) -> None:
        self._seen: list[SeenModule] = []
        self._skipped: frozenset[Path] = frozenset()
        self._entries: list[tuple[str, bytes]] = []
        self._programs: list[CompiledProgram] = []

    def __len__(self) -> int:
        return len(self._programs)

    @overload
    def __getitem__(self, place: int | str) -> CompiledProgram: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[CompiledProgram]: ...
    def __getitem__(self, place: int | str | slice) -> CompiledProgram | Sequence[CompiledProgram]:
        """A program by its index, or the last one of a name."""
        if not isinstance(place, str):
            return self._programs[place]
        for program in reversed(self._programs):
            if place in {program.name, program.module_name}:
                return program
        known = ", ".join(dict.fromkeys(program.name for program in self._programs)) or "none"
        raise UnknownNameError(f"no program `{visible(place)}` was compiled; there are: {known}")

    @property
    def largest(self) -> CompiledProgram | None:
        """The program that needs most memory; None where nothing was compiled."""
        return max(self._programs, key=lambda program: program.size, default=None)

    def __str__(self) -> str:
        if not self._programs:
            return "no program was compiled"
        by_size = sorted(self._programs, key=lambda program: -program.size)
        return "\n".join(
            f"{format_bytes(program.size):>12}  {visible(program.name)}"
            f"{'  (planned by hlomem)' if program.is_planned else ''}"
            for program in by_size
        )

    def __repr__(self) -> str:
        return f"<Compiles: {len(self)} programs>"

    def see(self, module: SeenModule) -> None:
        self._seen.append(module)

    def skip(self, entries: list[Path]) -> None:
        """Leave out entries of the cache that were there before."""
        self._skipped = frozenset(entries)

    def read(self, entries: list[Path]) -> None:
        """Keep the entries that are new."""
        self._entries = [
            (path.name.rsplit("-", 2)[0], path.read_bytes())
            for path in entries
            if path not in self._skipped
        ]

    def finish(self) -> None:
        """Join what was seen with what was stored."""
        modules = [(parse_message("ModuleHead", seen.proto), seen) for seen in self._seen]
        stored = _by_name(self._entries)
        numbered = {
            name: _by_number(entries)
            for name, entries in stored.items()
            if len(entries) != sum(module.name == name for module, _ in modules)
        }
        for module, seen in modules:
            if module.name in numbered:
                executable = numbered[module.name].pop(module.id, None)
            else:
                executable = stored[module.name].pop(0) if module.name in stored else None
            self._programs.append(CompiledProgram(module.name, executable=executable, seen=seen))
        for name, entries in stored.items():  # of compilers that show nothing
            left = list(numbered[name].values()) if name in numbered else entries
            self._programs += [CompiledProgram(name, executable=entry) for entry in left]
        self._seen, self._entries = [], []


def _by_name(entries: list[tuple[str, bytes]]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for name, entry in entries:
        found.setdefault(name, []).append(entry)
    return found


def _by_number(entries: list[bytes]) -> dict[int, bytes]:
    """Entries by the number of their module; they must be read for it."""
    found = {}
    for place, entry in enumerate(entries):
        try:
            [program, *_] = open_programs(entry, "an entry of the cache", MAX_BYTES)
        except HlomemError as error:
            logger.warning("%s", error)
            found[-1 - place] = entry
        else:
            found[parse_message("ModuleHead", program.module).id] = entry
    return found


# The block


@contextmanager
def captured() -> Iterator[Compiles]:
    """Every program JAX compiles within the block, in any thread of the process.

    Blocks may be nested, and open in several threads at once. What JAX has compiled before, it need
    not compile again: `jax.clear_caches()` makes it, but for what an outer block has stored.
    """
    require_jax()
    compiles = Compiles()
    _session.enter(compiles)
    try:
        yield compiles
    finally:
        _session.leave(compiles)


class _Session:
    """The blocks that are open: the first turns JAX's cache to a folder, the last turns it back."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._count = 0
        self._folder = Path()
        self._before: dict[str, Any] = {}

    def enter(self, compiles: Compiles) -> None:
        """Begin a block; the entries that are there are not its own."""
        with self._lock:
            if not self._count:
                self._begin()
            self._count += 1
            compiles.skip(_list_entries(self._folder))
            hook.add(compiles.see)

    def leave(self, compiles: Compiles) -> None:
        """End a block, and read what was stored in its time."""
        with self._lock:
            hook.remove(compiles.see)
            try:
                compiles.read(_list_entries(self._folder))
            finally:
                self._count -= 1
                if not self._count:
                    self._end()
        compiles.finish()

    def _begin(self) -> None:
        self._folder = _make_folder()
        config: Any = import_module("jax").config
        self._before = {name: getattr(config, name) for name in (*_SETTINGS, _FOLDER)}
        _configure({**_SETTINGS, _FOLDER: str(self._folder)})
        _forget_folder()

    def _end(self) -> None:
        """Restore the settings, but for those that other code has changed since."""
        config: Any = import_module("jax").config
        ours = {**_SETTINGS, _FOLDER: str(self._folder)}
        kept = [name for name, value in ours.items() if getattr(config, name) == value]
        _configure({name: self._before[name] for name in kept})
        _forget_folder()
        _remove_folder(self._folder)


_session = _Session()


def _make_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        problem = f"no temporary folder for JAX's cache: {error.strerror or error}"
        raise InputError(f"{problem}; set TMPDIR to another folder") from error


def _configure(settings: Mapping[str, Any]) -> None:
    config: Any = import_module("jax").config
    for name, value in settings.items():
        config.update(name, value)


def _forget_folder() -> None:
    """Have JAX look at its settings again: it opens its cache once."""
    cache: Any = import_module("jax.experimental.compilation_cache.compilation_cache")
    cache.reset_cache()


def _list_entries(folder: Path) -> list[Path]:
    """The entries of the cache, in the order they were written."""
    paths = [path for path in folder.iterdir() if path.name.endswith(_ENDING)]
    return sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path.name))


def _remove_folder(folder: Path) -> None:
    """Remove it; where other threads may still be storing a program, when the process ends."""
    shutil.rmtree(folder, ignore_errors=True)
    if threading.active_count() > 1:
        with suppress(OSError):
            folder.mkdir()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
