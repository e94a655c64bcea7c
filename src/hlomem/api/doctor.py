"""The state of an installation: packages, targets, folders of dumps; for `hlomem doctor`.

In: the environment, and what can be compiled for (`hlomem.jax.doctor`). Out: `Health`. Nothing is
imported to find out; versions are read from what pip wrote, and a folder of dumps is listed, not
read.
"""

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
from hlomem.report.data.health import Health, Package, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hlomem.report.data.health import TargetHealth

CORE = ("click", "msgspec", "protobuf", "rich")
OPTIONAL = {
    "jax": "compiles for machines that are not here",
    "jaxlib": "XLA itself",
    "libtpu": "compiles for TPUs without one",
    "jax-cuda13-plugin": "compiles for GPUs without one",
    "duckdb": "asks stores of many programs",
    "dask": "scans many programs",
    "ortools": "a second opinion on packings",
    "zstandard": "reads compressed caches",
}
"""Packages that dumps and modules do not need, and their uses."""
_DUMP_TO = re.compile(r"--xla_dump_to=(\S+)")
_CACHE = "JAX_COMPILATION_CACHE_DIR"
_MAX_LISTED = 10_000


def examine(
    targets: Iterable[TargetHealth] = (), environment: Mapping[str, str] = os.environ
) -> Health:
    """Looks at this interpreter and its environment; `targets` are told by who compiles."""
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


def _places(environment: Mapping[str, str]) -> list[Place]:
    found = []
    if flag := _DUMP_TO.search(environment.get("XLA_FLAGS", "")):
        found.append(_place("XLA_FLAGS", flag[1], "*-buffer-assignment.txt"))
    if cache := environment.get(_CACHE):
        found.append(_place(_CACHE, cache, "*"))
    return found


def _place(variable: str, path: str, pattern: str) -> Place:
    folder = Path(path)
    count = None
    if folder.is_dir():
        count = sum(1 for _, _ in zip(folder.glob(pattern), range(_MAX_LISTED), strict=False))
    return Place(variable=variable, path=path, count=count)
