"""Records jobs on a GPU: profile, allocator, arrays, plans and log of each, as few files.

    python3 tools/record_jobs.py OUT [--pools POOLS.json] [--jobs train,serve] [--parallel 4]

Needs a machine with JAX and nothing else. The jobs of `tools/recorded_jobs.py` run, each in a
process of its own with a time limit (`tools/job_recorder.py`). OUT gets `jobs-N.tar.gz` (per job
NAME.json.gz, NAME.xplane.pb.gz, NAME.*.prof, NAME.tuned.txt, NAME.log), `edges.json` and
`summary.txt`. With POOLS, a file that has for each job the pool its forecast wants when nothing is
tuned, each job runs three times more, untuned: once so that its programs are in a cache (compiled
in a small pool, XLA recomputes values to fit it), then with its pool taken at once, as large as
that and 1 % smaller; `edges.json` says what became of both. `--edges` runs only those. Where
hlomem's packages are there, the answers of `hlomem.jax.now()` and the notes of `hlomem.jax` on
errors are kept, too.

`--small` makes the jobs tiny: a dry run on a CPU, which has no allocator to record.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHILD = ROOT / "tools" / "job_recorder.py"
TOTAL = 150_109_880_320
"""Bytes of an H200, where the driver does not say."""
GROWS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
SIXTEENTH = {**GROWS, "XLA_PYTHON_CLIENT_MEM_FRACTION": ".06"}
AT_ONCE = {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".10"}
JOBS = {
    "train": GROWS,
    "evaluate": GROWS,
    "restore": GROWS,
    "accumulate": GROWS,
    "alternate": GROWS,
    "serve": GROWS,
    "leak": GROWS,
    "fragment": SIXTEENTH,
    "results": GROWS,
    "ahead": GROWS,
    "preallocated": AT_ONCE,
    "shapes": {**GROWS, "XLA_FLAGS": "--xla_gpu_autotune_level=0"},
    "eager": GROWS,
    "oom_program": GROWS,
    "oom_arrays": SIXTEENTH,
    "oom_tuner": SIXTEENTH,
    "oom_array": SIXTEENTH,
    "oom_late": SIXTEENTH,
    "regions": SIXTEENTH,
}
"""Each job with the environment it runs in."""
PYTHON_TRACED = "python"
"""`train` once more, from a warm cache, with Python's calls in the trace, which begins late."""
ALONE = ("oom_program", PYTHON_TRACED)
"""Jobs that run after all others: one wants the whole device, one the cache of another."""
UNTUNED = "--xla_gpu_autotune_level=0"
POOL_STEP = 2 << 20
PER_FILE = 15 << 20
LIMIT_S = 110
"""Seconds a job may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", default="")
    parser.add_argument("--pools", type=Path)
    parser.add_argument("--edges", action="store_true", help="record nothing, run the edges")
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=520, help="begin no further child then")
    parser.add_argument("--small", action="store_true")
    Parent(parser.parse_args()).run()


# The parent: one process for each job


class Parent:
    """Starts the jobs, and gathers what they leave."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.out: Path = asked.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.work = Path(tempfile.mkdtemp(prefix="jobs-"))
        self.names = asked.jobs.split(",") if asked.jobs else [*JOBS, PYTHON_TRACED]
        self.parallel = asked.parallel
        self.is_small = asked.small
        self.has_jobs = not asked.edges
        self.pools = json.loads(asked.pools.read_text()) if asked.pools else {}
        self.ends = time.time() + asked.seconds
        self.total = total_memory()
        self.lines: list[str] = []

    def run(self) -> None:
        self.say(f"device memory {self.total}, folder {self.work}, jobs {','.join(self.names)}")
        recorded = self.names if self.has_jobs else []
        with ThreadPoolExecutor(self.parallel) as pool:
            list(pool.map(self.record, [name for name in recorded if name not in ALONE]))
            for name in ALONE:
                if name in recorded:
                    self.record(name)
            edges = list(pool.map(self.edge, [n for n in self.pools if n in self.names]))
        (self.out / "edges.json").write_text(json.dumps(edges, indent=1))
        self.pack()
        (self.out / "summary.txt").write_text("\n".join(self.lines) + "\n")

    def say(self, line: str) -> None:
        print(line, flush=True)
        self.lines.append(line)

    def start(
        self, name: str, folder: Path, cache: Path, environment: dict[str, str], *words: str
    ) -> str:
        """Run a job in a child; its last line."""
        folder.mkdir(parents=True, exist_ok=True)
        cache.mkdir(parents=True, exist_ok=True)
        given = {
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "TF_CPP_MIN_LOG_LEVEL": "1",
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
            ),
            **environment,
        }
        if self.is_small:
            given |= {"HLOMEM_SMALL": "1", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-W", "ignore", str(CHILD), str(folder), name, *words]
        with (folder / f"{name}.log").open("w") as log:
            child = subprocess.Popen(command, env=given, stdout=log, stderr=subprocess.STDOUT)
            try:
                code: int | str = child.wait(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                code = "killed after its time"
        text = (folder / f"{name}.log").read_text(errors="replace")
        (folder / f"{name}.log").write_text(text[-60_000:])
        last = text.strip().splitlines()[-1:] or [""]
        return f"exit {code}: {last[0][-300:]}"

    def record(self, name: str) -> None:
        if time.time() > self.ends:
            self.say(f"{name}: not begun, no time is left")
            return
        began = time.time()
        folder, cache = self.work / "jobs", self.work / "cache" / name
        if name == PYTHON_TRACED:
            cache = self.work / "cache" / "train"
        environment = dict(JOBS.get(name, GROWS))
        tuned = f"--xla_gpu_dump_autotune_results_to={folder / name}.tuned.txt"
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {tuned}".strip()
        said = self.start(name, folder, cache, environment)
        self.say(f"{name}: {time.time() - began:.1f} s, {said}")

    def edge(self, name: str) -> dict[str, Any]:
        """A job, untuned, in the pool of its forecast, and in one 1 % smaller."""
        pool = int(self.pools[name])
        row: dict[str, Any] = {"job": name, "forecast_pool": pool}
        cache = self.work / "untuned" / name
        warm = {**GROWS, "XLA_FLAGS": UNTUNED}
        self.start(name, self.work / "edge-warm", cache, warm, "--no-trace")
        for word, wanted in (("fits", pool), ("under", pool * 99 // 100)):
            size = wanted // POOL_STEP * POOL_STEP
            if time.time() > self.ends:
                row[word] = "not begun"
                continue
            environment = {
                "XLA_FLAGS": UNTUNED,
                "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
                # A pool is rounded up to 2 MiB.
                "XLA_PYTHON_CLIENT_MEM_FRACTION": repr((size - (1 << 20)) / self.total),
            }
            folder = self.work / f"edge-{word}"
            self.start(name, folder, cache, environment, "--no-trace")
            try:
                left = json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))
                errors = [error["text"][:300] for error in left["errors"]]
                row[word] = {"pool": size, "errors": errors, "end": left["marks"][-1:]}
                row["plans"] = left["plans"]
            except (OSError, ValueError) as error:
                row[word] = {"pool": size, "errors": [f"no record: {error}"], "end": []}
        self.say(f"edge {name}: pool {pool}, fits {_ran(row['fits'])}, under {_ran(row['under'])}")
        return row

    def pack(self) -> None:
        """All files of all jobs in as few archives as their size allows."""
        groups: list[list[Path]] = [[]]
        size = 0
        for file in sorted((self.work / "jobs").glob("*")):
            size += file.stat().st_size
            if size > PER_FILE and groups[-1]:
                groups.append([])
                size = file.stat().st_size
            groups[-1].append(file)
        for number, files in enumerate(groups, 1):
            target = self.out / f"jobs-{number}.tar.gz"
            with tarfile.open(target, "w:gz", compresslevel=6) as archive:
                for file in files:
                    archive.add(file, file.name)
        shutil.rmtree(self.work, ignore_errors=True)


def _ran(row: Any) -> str:
    if not isinstance(row, dict):
        return str(row)
    return "failed" if row["errors"] else "ran"


def total_memory() -> int:
    """Bytes of the first GPU, as the driver says."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        cuda.cuInit(0)
        size, device = ctypes.c_size_t(), ctypes.c_int()
        cuda.cuDeviceGet(ctypes.byref(device), 0)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    except OSError:
        return TOTAL
    return int(size.value) or TOTAL


if __name__ == "__main__":
    main()
