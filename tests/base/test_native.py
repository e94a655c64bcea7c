"""The choice between native kernels and Python, by what was built and what the environment says."""

from __future__ import annotations

import os
import subprocess
import sys
from math import sqrt

from hlomem.assign.best_fit import IS_NATIVE
from hlomem.base.native import IS_WANTED, built_kernels, kernel
from tests.places import PACKAGE

_IS_NATIVE = "from hlomem.assign.best_fit import IS_NATIVE; print(IS_NATIVE)"


def is_native_with(**environment: str) -> bool:
    """Whether a process in this environment has the native heap."""
    kept = {name: value for name, value in os.environ.items() if name != "HLOMEM_PURE"}
    command = [sys.executable, "-c", _IS_NATIVE]
    printed = subprocess.run(command, env=kept | environment, capture_output=True, check=True)
    return printed.stdout.strip() == b"True"


def test_a_kernel_that_was_not_built_is_none() -> None:
    assert kernel("hlomem.assign._nowhere", "place") is None


def test_a_function_of_a_module_is_found() -> None:
    found = kernel("math", "sqrt")
    assert (found is sqrt) == IS_WANTED


def test_the_environment_turns_kernels_off() -> None:
    assert not is_native_with(HLOMEM_PURE="1")
    if IS_WANTED:
        assert is_native_with() == IS_NATIVE


def test_kernels_are_built_all_or_none() -> None:
    sources = {path.stem for path in PACKAGE.rglob("_*.c")}
    built = {module.rpartition(".")[2] for module in built_kernels()}
    assert built in (set(), sources)
    if IS_WANTED:
        assert bool(built) == IS_NATIVE
