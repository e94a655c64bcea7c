"""The state of an installation, for `hlomem doctor`; packages are not imported to find out."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from hlomem import __version__
from hlomem.base.native import IS_WANTED, built_kernels
from hlomem.report.data.health import Health, NamedFolder, Package, TargetHealth

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


CORE = ("click", "msgspec", "protobuf", "rich")
OPTIONAL = {
    "jax": "compile for other machines",
    "jaxlib": "XLA itself",
    "libtpu": "compile for TPUs without one",
    "jax-cuda13-plugin": "compile for GPUs without one",
    "duckdb": "query stores of many programs",
    "dask": "scan many programs on a cluster",
    "ortools": "a second solver for packings",
    "zstandard": "read compressed caches",
}
"""Packages that dumps and modules do not need, and their uses."""
_DUMP_TO = re.compile(r"--xla_dump_to=(\S+)")
_CACHE = "JAX_COMPILATION_CACHE_DIR"
_MAX_LISTED = 10_000


def examine(
    targets: Iterable[TargetHealth] = (), environment: Mapping[str, str] = os.environ
) -> Health:
    """The state of this interpreter and its environment; `targets` are the compile targets."""
    return Health(
        version=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}",
        system=f"{platform.system()} {platform.machine()}",
        core=tuple(Package(name=name, version=_version(name), use="") for name in CORE),
        optional=tuple(
            Package(name=name, version=_version(name), use=use) for name, use in OPTIONAL.items()
        ),
        kernels=tuple(built_kernels()),
        uses_kernels=IS_WANTED,
        targets=tuple(targets),
        places=tuple(_places(environment)),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _places(environment: Mapping[str, str]) -> list[NamedFolder]:
    found = []
    if flag := _DUMP_TO.search(environment.get("XLA_FLAGS", "")):
        found.append(_place("XLA_FLAGS", flag[1], "*-buffer-assignment.txt"))
    if cache := environment.get(_CACHE):
        found.append(_place(_CACHE, cache, "*"))
    return found


def _place(variable: str, path: str, pattern: str) -> NamedFolder:
    folder = Path(path)
    count = None
    if folder.is_dir():
        count = sum(1 for _, _ in zip(folder.glob(pattern), range(_MAX_LISTED), strict=False))
    return NamedFolder(variable=variable, path=path, count=count)
