"""Compiles pairs of programs and writes what XLA dumps, with what was changed.

    python -m tools.pairs.record TABLE OUT --home HOME --python VERSION=PYTHON... [NAME...]

TABLE is tools/pairs/diff.txt, or a table of its form with its scripts beside it, which may import
those of tools/programs/scripts. OUT/NAME/{before,after}/ get what XLA writes with the README's
flags; OUT/NAME/truth.json says what was changed and what XLA reserved on both sides, in bytes, and
the truths of all pairs of OUT go next to the table (.json). A side that several pairs share is
compiled once. On a TPU the process is stopped once XLA has written its plan, which is long before
it has made code. A pair that does not compile, or of which no byte changed, is named and left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.pairs.table import NEWEST, Row, Side, pairs
from tools.record_oom import ENVIRONMENT

PROGRAMS = Path(__file__).parent.parent / "programs" / "scripts"
SIDES = ("before", "after")
FLAGS = "--xla_dump_to={folder} --xla_dump_hlo_as_text"
MAX_WORKERS = 2
_LAST_FILE = "*.cl_*after_optimizations_after_buffer_assignment.txt"
_POLL_SECONDS = 0.2
_SETTLE_SECONDS = 0.5
_TIMEOUT_SECONDS = 900
_UNWANTED = shutil.ignore_patterns("*.o", "*.flagfile", "*.ll", "*comp_env.txt", "*_config.txt")
_SPACE = re.compile(r"^Memory Space: \S+ \(color=(\d+)\)\nTotal bytes: (\d+)", re.MULTILINE)
_DEFAULT = "0"


class NotCompiledError(Exception):
    """XLA wrote no plan of a side."""


def compile_side(side: Side, home: Path, pythons: dict[str, Path], folder: Path) -> None:
    """Lets XLA write into a folder; raises when it did not write a plan."""
    environment = os.environ | ENVIRONMENT["tpu"]
    environment |= {"XLA_FLAGS": FLAGS.format(folder=folder), "JAX_NUM_CPU_DEVICES": "4"}
    environment.pop("PYTHONPATH", None)
    line = [str(pythons[side.version]), side.program, "--platform", side.platform]
    process = subprocess.Popen(
        [*line, *side.options.split()],
        cwd=home,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if side.platform == "tpu" and any(folder.glob(_LAST_FILE)):
            time.sleep(_SETTLE_SECONDS)
            break
        time.sleep(_POLL_SECONDS)
    process.kill()
    _, errors = process.communicate()
    if not spaces_of(folder):
        raise NotCompiledError(f"{' '.join(side)} wrote no plan:\n{errors[-2000:]}")


def spaces_of(folder: Path) -> dict[str, int]:
    """Bytes that XLA reserves in each memory space, by color, of the largest module of a folder.

    Its names would mislead: what it calls cmem, color 5, is the host's memory.
    """
    found: list[dict[str, int]] = []
    for path in folder.glob("*memory-usage-report.txt"):
        rows = _SPACE.findall(path.read_text())
        found.append({color: int(size) for color, size in rows})
    return max(found, key=lambda spaces: spaces.get(_DEFAULT, 0), default={})


def compiled(side: Side, options: argparse.Namespace) -> Path:
    """The folder of a side, compiled unless it was before."""
    source = (options.home / side.program).read_text()
    key = hashlib.sha256(json.dumps([side, source]).encode()).hexdigest()[:16]
    folder: Path = options.out.parent / "compiled" / key
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent))
        compile_side(side, options.home, options.pythons, scratch)
        # Another pair may have been faster.
        if not folder.exists():
            scratch.rename(folder)
    return folder


def truth_of(name: str, row: Row, sides: dict[str, Side], folders: dict[str, Path]) -> Any:
    """What was changed in a pair, and what it did to the memory."""
    spaces = {side: spaces_of(folder) for side, folder in folders.items()}
    before, after = (spaces[side].get(_DEFAULT, 0) for side in SIDES)
    return {
        "name": name,
        "cause": row.cause,
        "change": row.says,
        "program": row.program,
        "backend": sides["before"].platform,
        "options": {side: sides[side].options for side in SIDES},
        "jaxlib": {side: sides[side].version for side in SIDES},
        "spaces": spaces,
        "before": before,
        "after": after,
        "delta": after - before,
        "percent": round(100 * (after - before) / before, 2),
    }


def record(name: str, options: argparse.Namespace) -> None:
    """Compiles both sides of a pair and writes them down."""
    row, before, after = pairs(options.table)[name]
    sides = {"before": before, "after": after}
    target: Path = options.out / name
    shutil.rmtree(target, ignore_errors=True)
    try:
        folders = {side: compiled(sides[side], options) for side in SIDES}
    except NotCompiledError as error:
        print(f"{name:28} left out: {error}", flush=True)
        return
    truth = truth_of(name, row, sides, folders)
    if not truth["delta"]:
        print(f"{name:28} left out: no byte changed", flush=True)
        return
    for side, folder in folders.items():
        shutil.copytree(folder, target / side, ignore=_UNWANTED)
    (target / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    sizes = f"{truth['before']:>12} {truth['delta']:>+12} {truth['percent']:>+7} %"
    print(f"{name:28} {sizes}", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--python", action="append", required=True, metavar="VERSION=PYTHON")
    parser.add_argument("name", nargs="*")
    options = parser.parse_intermixed_args()
    split = (given.rpartition("=") for given in options.python)
    options.pythons = {version or NEWEST: Path(path) for version, _, path in split}
    for scripts in (PROGRAMS, options.table.parent):
        shutil.copytree(scripts, options.home, dirs_exist_ok=True)
    names = options.name or list(pairs(options.table))
    with ThreadPoolExecutor(MAX_WORKERS) as pool:
        list(pool.map(lambda name: record(name, options), names))
    truths = [json.loads(path.read_text()) for path in sorted(options.out.glob("*/truth.json"))]
    options.table.with_suffix(".json").write_text(json.dumps(truths, indent=1) + "\n")


if __name__ == "__main__":
    main()
