"""Builds the native kernels into the wheel, where there is a compiler.

A kernel is a file `_name.c` beside the Python that does the same. With kernels the wheel holds a
library `_name.abi3.so` for each, which every Python from 3.11 on can load, and is for one platform.
Without a compiler, or Python's headers, it has none of them, is pure, and the same everywhere.

    pip install .                       builds them if it can
    HLOMEM_NATIVE=1 pip install .       or fails
    HLOMEM_NATIVE=0 pip install .       does not

As a script it builds the libraries beside their sources; with `--optional` the lack of a compiler
is no error.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from shutil import which
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("src/hlomem")
ENDING = ".abi3.so"
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow")
_OFTEN_THERE = ("cc", "gcc", "clang")


class NativeKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the kernels by the compiler Python was built with, or the one CC names."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch's
        """Adds the libraries to what is built: all of them, or none."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        libraries = build_kernels(root, os.environ.get("HLOMEM_NATIVE", ""))
        if libraries:
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform}"
            artifacts = [library.relative_to(root).as_posix() for library in libraries]
            build_data["artifacts"] += artifacts


def build_kernels(root: Path, wanted: str) -> list[Path]:
    """The libraries of all kernels; none where they are not wanted ("0"), or cannot be built.

    Where they are insisted on ("1"), what keeps them from being built is an error.
    """
    if wanted == "0":
        return []
    if not can_compile():
        if wanted == "1":
            raise OSError("no C compiler, or no headers of Python: native kernels cannot be built")
        return []
    try:
        return [compile_kernel(source, quiet=wanted != "1") for source in find_kernels(root)]
    except (OSError, subprocess.CalledProcessError):
        if wanted == "1":
            raise
        return []  # what Python does is as right, and slower


def find_kernels(root: Path) -> list[Path]:
    """The sources of all kernels."""
    return sorted((root / PACKAGE).rglob("_*.c"))


def find_compiler() -> list[str]:
    """The command of the compiler: what CC says, or Python was built with, or is often there."""
    given = os.environ.get("CC")
    commands = [given] if given else [str(sysconfig.get_config_var("CC") or ""), *_OFTEN_THERE]
    found = [command.split() for command in commands if command.split()]
    return next((command for command in found if which(command[0])), found[0])


def compile_kernel(source: Path, flags: tuple[str, ...] = ("-O3",), *, quiet: bool = False) -> Path:
    """Compiles a kernel beside its source, unless the library there is younger.

    Kernels may include the headers beside them.
    """
    library = source.with_name(source.stem + ENDING)
    read = [source, *source.parent.glob("*.h")]
    if library.exists() and library.stat().st_mtime > max(file.stat().st_mtime for file in read):
        return library
    command = [*find_compiler(), *flags, "-fPIC", "-shared", *WARNINGS]
    command.append(f"-I{sysconfig.get_path('include')}")
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    # Whole or not at all: another process may load the library.
    unfinished = library.with_suffix(f".{os.getpid()}")
    output = subprocess.DEVNULL if quiet else None
    try:
        subprocess.run([*command, source, "-o", unfinished], check=True, stderr=output)  # noqa: S603
        return unfinished.replace(library)
    finally:
        unfinished.unlink(missing_ok=True)


def main() -> int:
    """Command line."""
    if "--optional" in sys.argv[1:] and not can_compile():
        sys.stderr.write("no compiler, or no headers of Python: no native kernels are built\n")
        return 0
    build_kernels(Path(__file__).resolve().parent, "1")
    return 0


def can_compile() -> bool:
    """Whether there are a compiler and Python's headers."""
    return (
        which(find_compiler()[0]) is not None
        and (Path(sysconfig.get_path("include")) / "Python.h").exists()
    )


if __name__ == "__main__":
    sys.exit(main())
