"""The state of an installation as data: packages, targets, folders of dumps.

Found by `hlomem.api.doctor`; drawn by `health_text`.
"""

from __future__ import annotations

from hlomem.dump.records import Record


class Package(Record, frozen=True, kw_only=True):
    """A package, and the version that is installed."""

    name: str
    version: str
    """Empty where it is not installed."""
    use: str
    """Its use; empty where hlomem cannot do without it."""


class TargetHealth(Record, frozen=True, kw_only=True):
    """A kind of machine to compile for."""

    name: str
    install: str
    """The command that installs what is missing; empty where nothing is."""


class Place(Record, frozen=True, kw_only=True):
    """A folder the environment names."""

    variable: str
    path: str
    count: int | None
    """Programs or entries in it, up to ten thousand; None where the folder is not there yet."""


class Health(Record, frozen=True, kw_only=True):
    """All there is for hlomem to work with."""

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
    places: tuple[Place, ...]
