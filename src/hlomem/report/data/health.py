"""The state of an installation as data: packages, targets, folders of dumps."""

from __future__ import annotations

from hlomem.dump.records import Record


class Package(Record, frozen=True, kw_only=True):
    name: str
    version: str
    """Empty if it is not installed."""
    use: str
    """Empty for required packages."""


class TargetHealth(Record, frozen=True, kw_only=True):
    name: str
    install: str
    """The command that installs missing packages; empty if none is missing."""


class NamedFolder(Record, frozen=True, kw_only=True):
    variable: str
    path: str
    count: int | None
    """Programs or entries in it, up to ten thousand; None if the folder does not exist."""


class Health(Record, frozen=True, kw_only=True):
    version: str
    python: str
    system: str
    core: tuple[Package, ...]
    optional: tuple[Package, ...]
    kernels: tuple[str, ...]
    """Modules of native kernels that were built here; Python does the same, and slower."""
    uses_kernels: bool
    """Whether they are used: HLOMEM_PURE=1 forbids it."""
    targets: tuple[TargetHealth, ...]
    places: tuple[NamedFolder, ...]
