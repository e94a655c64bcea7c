"""Compiles the programs of examples/programs as users do, and keeps what XLA wrote.

    python -m tools.record_trials --python HOME/venv/bin/python --home HOME/project [NAME...]
    python -m tools.record_trials --python ... --home ... --full OUT [NAME...]

The flags are those of the README and no others, so that the text is compact. Programs are copied to
the given home and run there, for dumps name the source files; a dump that names any other folder
than those of the home and of the Python is refused. Without --full the GPT has two layers, and
memory dumps and optimized modules go to tests/goldens/trials/PLATFORM/VARIANT/, files above a few
KiB gzipped. With it everything XLA wrote goes to OUT/NAME/. Either folder also gets origin.json:
versions, command, and what `memory_analysis()` reports for each function that was compiled.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.record_oom import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "examples" / "programs"
GOLDENS = ROOT / "tests" / "goldens" / "trials"
MAX_PLAIN_BYTES = 8192
_TIMEOUT_SECONDS = 1800
_FLAGS = "--xla_dump_to={folder} --xla_dump_hlo_as_text"
_KEPT = re.compile(
    r"after_optimizations(-(buffer-assignment(-values)?|live-range|memory-usage-report))?\.txt$"
)
_UNASSIGNED = "*after_optimizations_before_buffer_assignment.txt"
_PATH = re.compile(r'"(/[^"\n]*\.py)"')
_VERSIONS = (
    "import importlib.metadata as m, json; print(json.dumps({name: m.version(name) for name in "
    "('jax', 'jaxlib', 'libtpu', 'flax', 'optax')}))"
)


class Trial(NamedTuple):
    """A program and its options; in small, other options are added."""

    program: str
    options: str = ""
    small: str = ""


_GPT = {
    "": "",
    "_donate": "--donate",
    "_b16": "--donate --batch 16",
    "_remat": "--donate --remat",
    "_bf16": "--donate --dtype bfloat16",
    "_upcast": "--donate --dtype bfloat16 --upcast",
}
_DECODE = {"": "", "_donate": "--donate"}
# By name, gpt_cpu or gpt_tpu_donate: the platform is the second word.
TRIALS = {
    f"{stem}_{platform}{variant}": Trial(program, options, small)
    for stem, program, variants, small in (
        ("gpt", "train_gpt.py", _GPT, "--layers 2"),
        ("decode", "decode.py", _DECODE, ""),
        ("conv", "conv.py", {"": ""}, ""),
        ("concat", "concat.py", {"": ""}, "--windows 16"),
        ("lost", "lost.py", {"": ""}, ""),
    )
    for platform in ("cpu", "tpu")
    for variant, options in variants.items()
} | {
    "fsdp_tpu": Trial("fsdp.py"),
    "fsdp_tpu_offload": Trial("fsdp.py", "--offload"),
    "gpt_tpu_oom": Trial("train_gpt.py", "--donate --batch 256", "--layers 2 --batch 360"),
    "decode_tpu_oom": Trial("decode.py", "--max-len 65536 --batch 32"),
    "concat_tpu_oom": Trial("concat.py", "--windows 700", "--windows 64 --rows 716800"),
}


def platform_of(name: str) -> str:
    """The platform that a trial's name contains."""
    return name.split("_")[1]


def command_of(name: str, *, full: bool) -> list[str]:
    """A trial's program with its options."""
    trial = TRIALS[name]
    options = trial.options if full else f"{trial.options} {trial.small}"
    return [trial.program, "--platform", platform_of(name), *options.split()]


def run(python: Path, home: Path, command: list[str], folder: Path) -> list[dict[str, Any]]:
    """Runs a program with XLA writing into a folder; returns the lines of JSON it printed."""
    environment = os.environ | ENVIRONMENT["tpu"] | {"XLA_FLAGS": _FLAGS.format(folder=folder)}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, *command],
        cwd=home,
        env=environment,
        timeout=_TIMEOUT_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode and not any("error" in line for line in lines):
        sys.stderr.write(done.stderr)
        raise SystemExit(f"{' '.join(command)} failed")
    return lines


def foreign_paths(folder: Path, *allowed: Path) -> Iterator[str]:
    """Source files named in a folder's texts that lie neither in the home nor with the Python."""
    for path in sorted(folder.glob("*.txt")):
        for source in set(_PATH.findall(path.read_text())):
            if not any(source.startswith(f"{prefix}/") for prefix in allowed):
                yield f"{path.name}: {source}"


def keep(scratch: Path, target: Path, *, unassigned: bool) -> None:
    """Memory dumps and optimized modules of a run, by the names XLA gave them.

    On request the module before buffer assignment, too, whose control dependencies XLA drops later.
    """
    target.mkdir(parents=True, exist_ok=True)
    for stale in target.glob("module_*"):
        stale.unlink()
    for path in sorted(scratch.glob("*.txt")):
        if _KEPT.search(path.name) is None and not (unassigned and path.match(_UNASSIGNED)):
            continue
        data = path.read_bytes()
        if len(data) <= MAX_PLAIN_BYTES:
            (target / path.name).write_bytes(data)
        else:
            packed = gzip.compress(data, compresslevel=9, mtime=0)
            (target / f"{path.name}.gz").write_bytes(packed)


def record(name: str, options: argparse.Namespace, versions: dict[str, str]) -> None:
    """Compiles one trial and keeps what XLA wrote."""
    command = command_of(name, full=options.full is not None)
    platform = platform_of(name)
    variant = name.replace(f"_{platform}", "", 1)
    target = options.full / name if options.full else GOLDENS / platform / variant
    with tempfile.TemporaryDirectory() as scratch:
        reported = run(options.python, options.home, command, Path(scratch))
        allowed = (options.home, options.python.parent.parent, options.home.parent)
        if wrong := sorted(foreign_paths(Path(scratch), *allowed)):
            raise SystemExit(f"{name} names files of this machine: {wrong[0]}")
        if options.full:
            shutil.rmtree(target, ignore_errors=True)
            drop = shutil.ignore_patterns("*.o", "*.flagfile", "*.ll")
            shutil.copytree(scratch, target, ignore=drop)
        else:
            keep(Path(scratch), target, unassigned=TRIALS[name].program == "fsdp.py")
    origin = {
        "program": f"examples/programs/{command[0]}",
        "options": " ".join(command[1:]),
        "backend": platform,
        "chip": "v5e" if platform == "tpu" else "",
        "flags": _FLAGS.format(folder="DIR"),
        "versions": versions,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "memory_analysis": reported,
    }
    (target / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")
    totals = [line.get("total_allocation_bytes", "error") for line in reported]
    print(name, totals, flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--full", type=Path)
    parser.add_argument("name", nargs="*")
    options = parser.parse_intermixed_args()
    shutil.copytree(PROGRAMS, options.home, dirs_exist_ok=True)
    line = [options.python, "-c", _VERSIONS]
    versions = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    for name in options.name or TRIALS:
        record(name, options, versions)


if __name__ == "__main__":
    main()
