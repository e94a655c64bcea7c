"""A store: Parquet files by table, run and date, and the manifests of those that count.

    STORE/fleet.json                                       the schema's version
    STORE/segments/SEGMENT.json                            one manifest a segment, written last
    STORE/modules/run=nightly/date=2026-11-15/SEGMENT.parquet

A scan adds segments and finally merges its own. Files of a segment have unique names, never change,
and count once their manifest exists: a killed scan leaves whole segments, and concurrent scans do
not interfere. Of two rows for one source of one run, the later segment's counts.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from hlomem import __version__
from hlomem.base.errors import CommandError, InputError
from hlomem.base.json_bytes import decode_json
from hlomem.base.source import visible
from hlomem.fleet.schema import MARKER, OLDEST, SCHEMA
from hlomem.fleet.storage import (
    exists,
    is_address,
    join,
    list_files,
    local_path,
    read_bytes,
    remove,
)
from hlomem.fleet.storage import write_bytes as write_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.fleet.storage import FileEntry

_KIND = "hlomem fleet store"
_SEGMENTS = "segments"
_KEPT_SECONDS = 24 * 3600
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


class Segment(Struct, frozen=True, kw_only=True):
    """A manifest."""

    segment: str
    schema: int
    run: str
    date: str
    committed: str
    """UTC, ISO 8601."""
    files: dict[str, str]
    """Paths in the store, by table."""
    replaces: tuple[str, ...] = ()
    """Segments merged into this one, which no longer count."""
    hlomem: str = ""


_copies: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""Local copies of remote stores' files, which relations may read until the process ends."""


def forget_copies() -> None:
    while _copies:
        _copies.popitem()[1].cleanup()


class Store:
    def __init__(self, root: str) -> None:
        self.root = root

    def segments(self) -> list[Segment]:
        """The segments that count, oldest first."""
        found = self._manifests()
        replaced = {name for segment in found for name in segment.replaces}
        counting = [segment for segment in found if segment.segment not in replaced]
        return sorted(counting, key=lambda segment: (segment.committed, segment.segment))

    def _manifests(self) -> list[Segment]:
        folder = join(self.root, _SEGMENTS)
        if not exists(folder):
            return []
        names = [
            entry.path for entry in list_files(folder) if re.fullmatch(r"[^.].*\.json", entry.name)
        ]
        found = [_read_manifest(name) for name in names]
        return [segment for segment in found if segment is not None]

    def sweep(self) -> None:
        """Remove segments replaced more than a day ago, which have no readers any more."""
        found = {segment.segment: segment for segment in self._manifests()}
        yesterday = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - _KEPT_SECONDS))
        for segment in list(found.values()):
            if segment.committed > yesterday:
                continue
            for name in segment.replaces:
                if (old := found.get(name)) is not None:
                    remove(join(self.root, _SEGMENTS, f"{name}.json"))
                    for path in old.files.values():
                        remove(join(self.root, path))

    def files_of(self, segments: list[Segment]) -> dict[str, list[str]]:
        """The local files of each table; remote ones are copied."""
        found: dict[str, list[str]] = {}
        for segment in segments:
            for table, name in segment.files.items():
                found.setdefault(table, []).append(self._local(name))
        return found

    def _local(self, name: str) -> str:
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise InputError(f"{visible(self.root)}: a manifest names a file outside: {name}")
        if not is_address(self.root):
            return str(local_path(self.root).resolve() / name)
        if self.root not in _copies:
            _copies[self.root] = tempfile.TemporaryDirectory(prefix="hlomem-store-")
        path = Path(_copies[self.root].name).resolve() / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(read_bytes(join(self.root, name)))
        return str(path)

    def commit(self, segment: Segment, made: Mapping[str, Path]) -> None:
        """Add a segment: its files first, its manifest last."""
        for table, path in made.items():
            write_file(join(self.root, segment.files[table]), [path.read_bytes()])
        manifest = join(self.root, _SEGMENTS, f"{segment.segment}.json")
        write_file(manifest, [msgspec.json.encode(segment)])


def _read_manifest(path: str) -> Segment | None:
    """A manifest; None if another process has just removed it."""
    try:
        segment = decode_json(read_bytes(path), Segment)
    except InputError:
        if exists(path):
            raise
        return None
    except msgspec.MsgspecError as error:
        raise InputError(f"{visible(path)}: not a manifest of a store: {error}") from error
    _check_schema(path, segment.schema)
    return segment


def new_segment(run: str, date: str, tables: list[str]) -> Segment:
    name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.urandom(6).hex()}"
    folder = f"run={run}/date={date}/{name}.parquet"
    return Segment(
        segment=name,
        schema=SCHEMA,
        run=run,
        date=date,
        committed=now(),
        files={table: f"{table}/{folder}" for table in tables},
        hlomem=__version__,
    )


def now() -> str:
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds // 1000:06d}"


def check_run(run: str) -> str:
    """The name of a run, which becomes part of paths."""
    if not _RUN.fullmatch(run):
        problem = f"not a name for a run: `{visible(run)}`"
        raise CommandError(f"{problem}; use letters, digits and `._+-`, as in nightly-41")
    return run


def open_store(path: str) -> Store:
    marker = join(path, MARKER)
    if not exists(marker):
        raise InputError(f"{visible(path)}: not a store; `hlomem scan PATH -o STORE` makes one")
    try:
        content = decode_json(read_bytes(marker), dict[str, object])
    except msgspec.MsgspecError as error:
        raise InputError(f"{visible(marker)}: damaged: {error}") from error
    schema = content.get("schema")
    if content.get("kind") != _KIND or not isinstance(schema, int):
        raise InputError(f"{visible(marker)}: not a store of hlomem")
    _check_schema(marker, schema)
    return Store(path)


def make_store(path: str) -> Store:
    """The store at a path, created if the folder is empty or missing."""
    marker = join(path, MARKER)
    if exists(marker):
        return open_store(path)
    is_used = exists(path) and any(map(_is_foreign, list_files(path)))
    if exists(marker):  # asked again: another scan may have made it while files were listed
        return open_store(path)
    if is_used:
        raise CommandError(f"{visible(path)} is not a store and not empty; give a new folder")
    write_file(marker, [msgspec.json.encode({"kind": _KIND, "schema": SCHEMA})])
    return Store(path)


def _is_foreign(entry: FileEntry) -> bool:
    """Whether a file is not the temporary marker of another scan."""
    return not entry.name.startswith(f".{MARKER}.")


def _check_schema(path: str, schema: int) -> None:
    if schema > SCHEMA:
        problem = f"a store of schema {schema}; this hlomem {__version__} reads up to {SCHEMA}"
        raise InputError(f"{visible(path)}: {problem}: upgrade hlomem")
    if schema < OLDEST:
        problem = f"a store of schema {schema}, which is no longer supported"
        way = "scan its sources into a new store: hlomem scan PATH... -o NEW"
        raise InputError(f"{visible(path)}: {problem}; {way}")
