"""A program's memory as a test remembers it: a few numbers that say what has grown, and where.

In: a `MemoryExplanation`. Out: a `Measurement`, small enough for a file under version control.
Source lines are relative to the project, so that they are the same on every machine.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.report.data.branches import ARGUMENTS
from hlomem.report.data.peak import NOWHERE

if TYPE_CHECKING:
    from hlomem.api.explain import MemoryExplanation

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
