"""Native kernels under sanitizers: built once more, then their tests, then the fuzzer.

    python -m tools.sanitize [--count 3000] [--seed 1]

A copy of the package gets kernels that stop at the first read or write outside of memory they have,
and at the first undefined operation (gcc's or clang's `-fsanitize=address,undefined`). The tests
that hold kernels to Python run on it, then damaged inputs go straight into kernels. Python's own
small blocks are made by malloc, so that each is watched.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from hatch_build import compile_kernel, find_compiler, find_kernels

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / ".sanitize"
FLAGS = (
    *("-O1", "-g", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
TESTS = (
    "tests/test_native.py",
    "tests/analysis/test_fused_bodies.py",
    "tests/assign/test_best_fit.py",
    "tests/check/test_fusions.py",
    *(f"tests/dump/test_{name}.py" for name in ("assignment", "live_range", "values")),
    "tests/hlo/text",
    "tests/properties/test_native_lines.py",
    "tests/view/test_sweep.py",
)


def main() -> int:
    """Command line; the first step that fails ends it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", default="3000")
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    _build()
    # One process: what a sanitizer says stands behind the test that it stopped.
    steps = (
        ["-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *TESTS],
        [
            "-m",
            "tools.fuzz",
            "--target",
            "kernels",
            "--count",
            options.count,
            "--seed",
            options.seed,
        ],
    )
    for step in steps:
        done = subprocess.run([sys.executable, *step], cwd=ROOT, env=_environment(), check=False)
        if done.returncode:
            return done.returncode
    return 0


def _build() -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(
        ROOT / "src", COPY / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for source in find_kernels(COPY):
        compile_kernel(source, FLAGS)


def _environment() -> dict[str, str]:
    """Python with the sanitizer's library below it, as its own executable was built without."""
    asked = [*find_compiler(), "-print-file-name=libasan.so"]
    library = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    return {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",  # Python keeps what it needs to the end
        "LD_PRELOAD": library,
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(COPY / "src"),
    }


if __name__ == "__main__":
    sys.exit(main())
