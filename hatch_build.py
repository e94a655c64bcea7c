"""Builds the native heap into the wheel, where `HLOMEM_NATIVE=1` asks for it.

Without it the wheel is pure and the same everywhere. With it the wheel holds
`hlomem/assign/_heap.abi3.so`, which every Python from 3.11 on can load, and is for one platform.

    HLOMEM_NATIVE=1 pip install .
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/hlomem/assign")
SOURCE, LIBRARY = "_heap.c", "_heap.abi3.so"


class NativeHeap(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles one file by the compiler Python was built with, or the one CC names."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch's
        """Adds the library to what is built."""
        if self.target_name != "wheel" or os.environ.get("HLOMEM_NATIVE") != "1":
            return
        compile_heap(Path(self.root))
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_')}"
        build_data["artifacts"].append(f"{FOLDER}/{LIBRARY}")


def compile_heap(root: Path) -> Path:
    """Compiles the native heap beside its source."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    include = sysconfig.get_path("include")
    library = root / FOLDER / LIBRARY
    command = [*compiler.split(), "-O3", "-fPIC", "-shared", "-Wall", "-Wextra", f"-I{include}"]
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    subprocess.run([*command, root / FOLDER / SOURCE, "-o", library], check=True)  # noqa: S603
    return library


if __name__ == "__main__":
    compile_heap(Path(__file__).resolve().parent)
