"""The releases of libtpu whose phases and artifacts are known, and the one that is installed."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from hlomem.base.errors import HlomemError
from hlomem.base.source import visible

KNOWN = ("0.0.51",)
"""Releases whose machine code was compared; others name and pack their artifacts differently."""
_OVERRIDE = "TPU_LIBRARY_PATH"


class UnknownLibtpuError(HlomemError):
    """A libtpu that cannot be linked with: none, or one whose artifacts are not known."""


class Library(NamedTuple):
    """An installed libtpu."""

    version: str
    path: Path


def find_library() -> Library:
    """The installed libtpu, if it is a known release."""
    try:
        found = version("libtpu")
        spec = find_spec("libtpu")
    except (PackageNotFoundError, ModuleNotFoundError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise UnknownLibtpuError(f"libtpu is not installed: pip install libtpu=={KNOWN[-1]}")
    check_version(found)
    path = Path(spec.submodule_search_locations[0]) / "libtpu.so"
    other = os.environ.get(_OVERRIDE, "")
    if other and not (path.exists() and Path(other).exists() and path.samefile(other)):
        problem = f"{_OVERRIDE} names {visible(other)}, a libtpu of unknown version"
        raise UnknownLibtpuError(f"{problem}: unset it to link with libtpu {found}")
    return Library(found, path)


def check_version(found: str) -> None:
    """Raises `UnknownLibtpuError` for a release that is not known."""
    if found not in KNOWN:
        known = " and ".join(KNOWN)
        problem = f"libtpu {visible(found)} is not known to `link`, which knows {known}"
        raise UnknownLibtpuError(f"{problem}: pip install libtpu=={KNOWN[-1]}")
