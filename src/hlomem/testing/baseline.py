"""The expected memory of a project's programs: a JSON file under version control, and their dumps.

A `Measurement` is small, with source lines relative to the project; files are sorted, one key per
line, so that they merge well. The dumps of the programs, gzipped in a folder each, are optional.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from hlomem import hlo
from hlomem.api.opening import open_memory
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import InputError
from hlomem.base.json_bytes import decode_json
from hlomem.base.source import visible
from hlomem.dump.file_names import FILE_NAMES
from hlomem.report.data.branches import ARGUMENTS
from hlomem.report.data.peak import NOWHERE

if TYPE_CHECKING:
    from hlomem.api.explain import MemoryExplanation
    from hlomem.report.data.memory import MemoryView


SCHEMA = "hlomem/baseline/1"


class _File(msgspec.Struct, frozen=True):
    schema: str
    programs: dict[str, Measurement]


def read_baseline(path: Path) -> dict[str, Measurement]:
    """The measurements of a file, by test; empty if it does not exist."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{visible(str(path))}: {error.strerror or error}") from error
    try:
        file = decode_json(data, _File)
    except msgspec.MsgspecError as error:
        hint = "perhaps with merge markers; --hlomem-update rewrites the file"
        problem = f"not a baseline of hlomem: {error}"
        raise InputError(f"{visible(str(path))}: {problem}\n  {hint}") from error
    if file.schema != SCHEMA:
        problem = f"a baseline of another version, {visible(file.schema)}"
        raise InputError(f"{visible(str(path))}: {problem}; --hlomem-update rewrites it")
    return file.programs


def write_baseline(path: Path, programs: dict[str, Measurement]) -> None:
    content = {"programs": msgspec.to_builtins(programs), "schema": SCHEMA}
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_files(path.parent, {path.name: [text.encode()]}, force=True)


def merge(
    old: dict[str, Measurement], new: dict[str, Measurement], root: Path
) -> dict[str, Measurement]:
    """The new measurements, and the old ones of tests that did not run but still exist."""
    kept = {key: value for key, value in old.items() if (root / key.partition("::")[0]).exists()}
    return {**kept, **new}


_WORTH_KEEPING = 0.01
"""Smallest fraction of memory for which a role or a line is recorded."""
_MAX_LINES = 12
_COMPILERS = {
    "cpu": ("jaxlib",),
    "gpu": ("jaxlib", "jax-cuda13-plugin", "jax-cuda12-plugin"),
    "tpu": ("jaxlib", "libtpu"),
}
"""The packages whose versions determine the plan, by platform."""


class Measurement(Struct, frozen=True, kw_only=True):
    """One program's memory in one memory space; only large roles and lines."""

    target: str
    """The machine it was compiled for."""
    space: str
    bytes: int
    """Reserved bytes."""
    peak: int
    """Bytes alive at the peak; the reserved bytes if unknown."""
    roles: dict[str, int]
    lines: dict[str, int]
    """Bytes at the peak by source line."""
    versions: dict[str, str]
    """Of the compiler's packages."""


def measure(memory: MemoryExplanation, target: str | None, root: Path) -> Measurement:
    size = memory.space.size
    has_peak = memory.timeline is not None
    least = _WORTH_KEEPING * size
    lines: dict[str, int] = {}
    for row in memory.by("line")[:_MAX_LINES] if has_peak else ():
        if row.size >= least and row.key not in {ARGUMENTS, NOWHERE}:
            key = relative_line(row.key, root)
            lines[key] = lines.get(key, 0) + row.size
    return Measurement(
        target=target or memory.memory.machine_name,
        space=memory.space.name,
        bytes=size,
        peak=memory.peak.size if has_peak else size,
        roles={share.role: share.size for share in memory.roles if share.size >= least},
        lines=lines,
        versions=_versions(memory.memory.machine.platform),
    )


def relative_line(line: str, root: Path) -> str:
    """A source line relative to the project, to the installed packages, or to its own folder."""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in line:
            return line.rpartition(folder)[2]
    path, colon, number = line.rpartition(":")
    if not colon:
        return line
    try:
        return f"{Path(path).relative_to(root).as_posix()}:{number}"
    except ValueError:
        return "/".join(Path(path).parts[-2:]) + f":{number}"


def _versions(platform: str) -> dict[str, str]:
    found = {}
    for package in _COMPILERS.get(platform, ()):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


_MAX_NAME = 60


def folder_of(folder: Path, key: str) -> Path:
    readable = re.sub(r"[^\w.-]+", "-", key).strip("-")[-_MAX_NAME:]
    return folder / f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def save_program(folder: Path, key: str, memory: MemoryExplanation) -> None:
    dump, module = memory.memory.dump, memory.memory.module
    texts = {FILE_NAMES[part.kind].short: dump.part_text(part) for part in dump.parts}
    if module is not None:
        texts["module.hlo"] = hlo.format_module(module)
    packed = {
        f"{name}.gz": [gzip.compress(text.encode("utf-8", "surrogateescape"), mtime=0)]
        for name, text in texts.items()
    }
    write_files(folder_of(folder, key), packed, force=True)


def open_program(folder: Path, key: str) -> MemoryView | None:
    path = folder_of(folder, key)
    return open_memory(path) if path.is_dir() else None
