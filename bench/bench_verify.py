"""Checking a plan against making it: CPU time of cold processes.

    python -m bench.bench_verify [--corpus ../shared] [--repeat 3]

One row per module of real/cpu of at least 100 kB: `hlomem plan` from the start of the process to
its end, `hlomem verify` of XLA's dump with the module, and how many times as long the second takes.
Processes of the two take turns, so that a noisy machine hits both, and the best of several counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SMALLEST = 100_000
RUN = "import sys; from hlomem.cli import main; sys.exit(main(sys.argv[1:]))"


def cpu_seconds(*arguments: str) -> float:
    """User and system time of a process that runs `hlomem`."""
    before = os.times()
    command = [sys.executable, "-c", RUN, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    used = after.children_user - before.children_user
    return used + after.children_system - before.children_system


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    beside = Path(__file__).resolve().parent.parent.parent / "shared"
    parser.add_argument("--corpus", type=Path, default=beside)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(f"{'module':<56} {'plan':>8} {'verify':>8}   times")
    for module in sorted(options.corpus.glob("real/cpu/*/module.hlo")):
        if module.stat().st_size < SMALLEST:
            continue
        plans, checks = [], []
        with tempfile.TemporaryDirectory() as out:
            for _ in range(options.repeat):
                plans.append(cpu_seconds("plan", str(module), "-o", out, "--force"))
                checks.append(cpu_seconds("verify", str(module.parent)))
        row = f"{min(plans):6.2f} s {min(checks):6.2f} s {min(checks) / min(plans):7.2f}"
        print(f"{module.parent.name:<56} {row}", flush=True)


if __name__ == "__main__":
    main()
