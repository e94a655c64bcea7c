"""Builds the native kernels into the wheel, where `HLOMEM_NATIVE=1` asks for them.

A kernel is a file `_name.c` beside the Python that does the same. Without kernels the wheel is pure
and the same everywhere. With them it holds a library `_name.abi3.so` for each, which every Python
from 3.11 on can load, and is for one platform.

    HLOMEM_NATIVE=1 pip install .

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


class NativeKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the kernels by the compiler Python was built with, or the one CC names."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch's
        """Adds the libraries to what is built."""
        if self.target_name != "wheel" or os.environ.get("HLOMEM_NATIVE") != "1":
            return
        root = Path(self.root)
        libraries = [compile_kernel(source) for source in find_kernels(root)]
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["artifacts"] += [library.relative_to(root).as_posix() for library in libraries]


def find_kernels(root: Path) -> list[Path]:
    """The sources of all kernels."""
    return sorted((root / PACKAGE).rglob("_*.c"))


def find_compiler() -> list[str]:
    """The command of the compiler, with the flags Python was built with."""
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()


def compile_kernel(source: Path) -> Path:
    """Compiles a kernel beside its source, unless the library there is younger.

    Kernels may include the headers beside them.
    """
    library = source.with_name(source.stem + ENDING)
    read = [source, *source.parent.glob("*.h")]
    if library.exists() and library.stat().st_mtime > max(file.stat().st_mtime for file in read):
        return library
    command = [*find_compiler(), "-O3", "-fPIC", "-shared", "-Wall", "-Wextra"]
    command.append(f"-I{sysconfig.get_path('include')}")
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    # Whole or not at all: a process may load the library meanwhile.
    unfinished = library.with_suffix(f".{os.getpid()}")
    subprocess.run([*command, source, "-o", unfinished], check=True)  # noqa: S603
    return unfinished.replace(library)


def main() -> int:
    """Command line."""
    if "--optional" in sys.argv[1:] and not can_compile():
        sys.stderr.write("no compiler, or no headers of Python: no native kernels are built\n")
        return 0
    for source in find_kernels(Path(__file__).resolve().parent):
        compile_kernel(source)
    return 0


def can_compile() -> bool:
    """Whether there are a compiler and Python's headers."""
    return (
        which(find_compiler()[0]) is not None
        and (Path(sysconfig.get_path("include")) / "Python.h").exists()
    )


if __name__ == "__main__":
    sys.exit(main())
