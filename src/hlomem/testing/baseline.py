"""The memory of a project's programs as it should be: a file of JSON under version control.

In: the file. Out: a `Measurement` for every test. What is written is the same for the same numbers:
sorted, a key a line, so that version control shows and merges it as it does code.
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
    """The measurements of a file, by test; none where there is no file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{visible(str(path))}: {error.strerror or error}") from error
    try:
        file = msgspec.json.decode(data, type=_File)
    except msgspec.MsgspecError as error:
        hint = "a merge may have left its marks; --hlomem-update writes the file anew"
        raise InputError(
            f"{visible(str(path))}: no baseline of hlomem: {error}\n  {hint}"
        ) from error
    if file.schema != SCHEMA:
        problem = f"a baseline of another version, {visible(file.schema)}"
        raise InputError(f"{visible(str(path))}: {problem}; --hlomem-update writes it anew")
    return file.programs


def write_baseline(path: Path, programs: dict[str, Measurement]) -> None:
    """Write the file, whole or not at all."""
    content = {"programs": msgspec.to_builtins(programs), "schema": SCHEMA}
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_files(path.parent, {path.name: [text.encode()]}, force=True)


def merge(
    old: dict[str, Measurement], new: dict[str, Measurement], root: Path
) -> dict[str, Measurement]:
    """The new measurements, and the old ones of tests that did not run but are still there."""
    kept = {key: value for key, value in old.items() if (root / key.partition("::")[0]).exists()}
    return {**kept, **new}


_WORTH_KEEPING = 0.01
"""Share of the memory below which a role or a line is not remembered."""
_MAX_LINES = 12
_COMPILERS = {
    "cpu": ("jaxlib",),
    "gpu": ("jaxlib", "jax-cuda13-plugin", "jax-cuda12-plugin"),
    "tpu": ("jaxlib", "libtpu"),
}
"""By platform the packages whose versions decide what is planned."""


class Measurement(Struct, frozen=True, kw_only=True):
    """One program's memory, of one memory space."""

    target: str
    """The machine it was compiled for."""
    space: str
    bytes: int
    """Bytes XLA reserves."""
    peak: int
    """Bytes alive at the peak; what is reserved where that is not known."""
    roles: dict[str, int]
    """Bytes by role, the large ones."""
    lines: dict[str, int]
    """Bytes at the peak by source line, the large ones."""
    versions: dict[str, str]
    """Of the packages that made the plan."""


def measure(memory: MemoryExplanation, target: str | None, root: Path) -> Measurement:
    """The numbers of a program's memory."""
    size = memory.space.size
    has_peak = memory.timeline is not None
    least = _WORTH_KEEPING * size
    lines: dict[str, int] = {}
    for row in memory.by("line")[:_MAX_LINES] if has_peak else ():
        if row.size >= least and row.key not in {ARGUMENTS, NOWHERE}:
            key = place_in(row.key, root)
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


def place_in(line: str, root: Path) -> str:
    """A source line relative to the project, or to where libraries are installed."""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in line:
            return line.rpartition(folder)[2]
    path, colon, number = line.rpartition(":")
    if not colon:
        return line
    try:
        return f"{Path(path).relative_to(root).as_posix()}:{number}"
    except ValueError:
        return line


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
    """The folder the program of a test is kept in."""
    readable = re.sub(r"[^\w.-]+", "-", key).strip("-")[-_MAX_NAME:]
    return folder / f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def save_program(folder: Path, key: str, memory: MemoryExplanation) -> None:
    """Keep a program's dump; the same dump gives the same bytes."""
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
    """A program as it was; None where it was not kept."""
    path = folder_of(folder, key)
    return open_memory(path) if path.is_dir() else None
