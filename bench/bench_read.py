"""Reading dumps against XLA's parser: `python -m bench.bench_read [--corpus ../shared]`.

Prints CPU time and peak memory of reading a large values dump, beside the CPU time XLA's C++ takes
in the same run to parse the module that dump belongs to.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ENTRY = "real/cpu/hlo_llama31_8b_bf16_1x8"
RUNS = 5

READ = """
import sys, time
from hlomem.api.load import read_source
from hlomem.dump.parts import parse_part
start = time.process_time()
part = parse_part(read_source(sys.argv[1]))
spent = time.process_time() - start
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(spent, int(status["VmHWM"].split()[0]) * 1024)
"""
HELP = """
import sys, time
from hlomem.cli import main
main(["--help"])
"""


def read_figures(path: Path) -> tuple[float, int]:
    """CPU seconds (best of several) and peak bytes of reading one file in a fresh process."""
    command = [sys.executable, "-c", READ, str(path)]
    runs = [subprocess.run(command, capture_output=True, check=True) for _ in range(RUNS)]
    figures = [run.stdout.split() for run in runs]
    return min(float(spent) for spent, _ in figures), min(int(peak) for _, peak in figures)


def xla_seconds(path: Path) -> float | None:
    """CPU seconds of XLA's own parser, where jaxlib is installed."""
    try:
        from jaxlib import _hlo  # noqa: PLC0415 - optional
    except ImportError:
        return None
    text = path.read_text()
    spent = []
    for _ in range(3):
        start = time.process_time()
        _hlo.hlo_module_from_text(text)
        spent.append(time.process_time() - start)
    return min(spent)


def help_seconds() -> float:
    """Wall seconds of `hlomem --help` in a fresh process."""
    spent = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", HELP], capture_output=True, check=True)
        spent.append(time.perf_counter() - start)
    return min(spent)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path("../shared"))
    entry = parser.parse_args().corpus / ENTRY
    print(f"hlomem --help            {help_seconds():8.3f} s wall")
    if not entry.is_dir():
        print(f"no {ENTRY} in the corpus: reading was not measured")
        return
    xla = xla_seconds(entry / "module.hlo")
    if xla is None:
        print("XLA's parser             not installed (pip install jaxlib): no ratio")
    else:
        print(f"XLA parses the module    {xla:8.3f} s CPU")
    for name in ("values.txt", "buffer-assignment.txt", "live-range.txt"):
        spent, peak = read_figures(entry / name)
        size = (entry / name).stat().st_size
        ratio = "" if xla is None else f"  {spent / xla:5.2f} of XLA's parse"
        print(
            f"read {name:22} {spent:6.3f} s CPU{ratio}  {size / 1e6:5.1f} MB, "
            f"peak memory {peak / size:4.1f} x the file"
        )


if __name__ == "__main__":
    main()
