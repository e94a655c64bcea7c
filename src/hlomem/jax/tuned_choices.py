"""The kernels an autotuner chose on a device, for compiles without one.

In: the file of `XLA_FLAGS=--xla_gpu_dump_autotune_results_to=FILE`. Out: a file that XLA finds the
same choices in when it compiles for a target. XLA looks a choice up by fingerprints of the device
and of its libraries' versions (autotuner_cache_interface.cc), which are others without a device; it
logs its own, so that a child process, which compiles one matrix product, tells them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from hlomem.api.load import read_source
from hlomem.base.errors import CommandError, InputError
from hlomem.base.source import visible

FLAG = "xla_gpu_load_autotune_results_from"
_PROBE = """
import sys; sys.path[:0] = [sys.argv[1]]
import jax
from hlomem.jax.compile.programs import lower
from hlomem.jax.target_kinds import parse_target
side = jax.ShapeDtypeStruct((256, 256), "float32")
lower(lambda x: x @ x, [side], {}, parse_target(sys.argv[2])).compile()
"""
_LOGGED = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "autotuner_cache_interface=1",
    "JAX_PLATFORMS": "cpu",
}
_FINGERPRINT = '"[0-9a-f]{16}"'
_PACKAGE_HOME = str(Path(__file__).parents[2])


@lru_cache(maxsize=8)
def file_for(path: str, target: str) -> Any:
    """A temporary file with the choices of another, as compiles for a target look them up."""
    source = read_source(path)
    if "hlo_fingerprint" not in source.text:
        raise InputError(
            f"{visible(path)}: no results of XLA's autotuner\n"
            f"  XLA_FLAGS=--xla_gpu_dump_autotune_results_to={visible(path)} writes them"
        )
    text = source.text
    for key, value in zip(("device", "codegen_version"), _fingerprints(target), strict=True):
        text = re.sub(rf"\b{key}: {_FINGERPRINT}", f'{key}: "{value}"', text)
    made = NamedTemporaryFile("w", prefix="hlomem-", suffix=".txt")  # noqa: SIM115 - kept as long
    made.write(text)
    made.flush()
    return made


def _fingerprints(target: str) -> tuple[str, str]:
    """The fingerprints of the device and of the versions in a compile for a target."""
    done = subprocess.run(  # noqa: S603 - our own text
        [sys.executable, "-c", _PROBE, _PACKAGE_HOME, target],
        env={**os.environ, **_LOGGED},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    device = re.search(r"Device fingerprint: ([0-9a-f]{16}) ", done.stderr)
    version = re.search(r"Codegen version: ([0-9a-f]{16}) ", done.stderr)
    if device is None or version is None:
        raise CommandError(f"XLA does not say how it looks up an autotuner's results for {target}")
    return device[1], version[1]
