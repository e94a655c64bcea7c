"""Parsing against XLA's own parser: CPU time, growth and peak memory, in one run.

    python bench/bench_parse.py [--corpus ../shared] [--repeat 3]

Needs jaxlib beside hlomem for the comparison; without it only hlomem's times are printed. A ratio
above 1 means that hlomem is faster (or smaller). "lazy" is what planning needs, "full" reads fused
bodies and attributes, too.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hlomem.hlo import parse

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    from jaxlib import _hlo  # type: ignore[import-not-found]
except ImportError:
    _hlo = None

SMALLEST = 100_000
REFERENCE = "real/cpu/hlo_llama31_8b_bf16_1x8/module.hlo"


def cpu_time(work: Callable[[], object]) -> float:
    """CPU seconds of one run; what an earlier one left behind is collected before."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(text: str, repeat: int) -> tuple[float, float, float]:
    """The best times of XLA, lazy and full; the three take turns, so that noise hits all."""
    best = [float("inf")] * 3
    for _ in range(repeat):
        works = (
            lambda: _hlo.hlo_module_from_text(text) if _hlo else None,
            lambda: parse(text),
            lambda: parse(text, lazy=False),
        )
        best = [min(old, cpu_time(work)) for old, work in zip(best, works, strict=True)]
    return best[0], best[1], best[2]


def ten_copies(text: str) -> str:
    """A module of ten times the computations, each copy under new names, one of them the entry."""
    header, _, body = text.partition("\n\n")
    called = body.replace("ENTRY %", "%")
    copies = [called.replace("%", f"%copy{number}.") for number in range(9)]
    return "\n".join([f"{header}\n", *copies, body])


def peak_memory(path: Path, which: str) -> float:
    """Megabytes that parsing adds to a fresh process that has read the text."""
    command = [sys.executable, __file__, "--peak", which, str(path)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(which: str, path: Path) -> None:
    """Run in the fresh process."""
    text = path.read_text(encoding="utf-8")
    before = memory("VmRSS")
    module = _hlo.hlo_module_from_text(text) if which == "xla" else parse(text)
    print(memory("VmHWM") - before)
    del module


def memory(field: str) -> float:
    """Megabytes the process holds now (VmRSS) or held at most (VmHWM)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def print_table(corpus: Path, repeat: int) -> None:
    """One row per module of at least 100 kB."""
    print(
        f"{'module':58} {'MB':>6} {'xla ms':>8} {'lazy':>7} {'full':>7} {'x lazy':>7} {'x full':>7}"
    )
    for path in sorted(corpus.glob("real/*/*/*.hlo")):
        text = path.read_text(encoding="utf-8")
        if len(text) < SMALLEST:
            continue
        xla, lazy, full = measure(text, repeat)
        name = "/".join(path.parts[-3:])[-58:]
        print(
            f"{name:58} {len(text) / 1e6:6.1f} {xla * 1e3:8.1f} {lazy * 1e3:7.1f} "
            f"{full * 1e3:7.1f} {xla / lazy:7.1f} {xla / full:7.1f}"
        )


def print_growth_and_memory(corpus: Path, repeat: int) -> None:
    """Time of ten copies against one, and peak memory against XLA's."""
    reference = corpus / REFERENCE
    small = (corpus / "real/cpu/gemma3_1b_flax_call/module.hlo").read_text(encoding="utf-8")
    large = ten_copies(small)
    lazy, full = measure_ours(small, repeat)
    lazy_ten, full_ten = measure_ours(large, repeat)
    print(f"ten copies of one module: lazy x {lazy_ten / lazy:.1f}, full x {full_ten / full:.1f}")
    ours = peak_memory(reference, "hlomem")
    theirs = peak_memory(reference, "xla") if _hlo else float("nan")
    print(f"peak memory: hlomem {ours:.0f} MB, XLA {theirs:.0f} MB, ratio {theirs / ours:.1f}")


def measure_ours(text: str, repeat: int) -> tuple[float, float]:
    """The best times of lazy and full alone."""
    lazy = min(cpu_time(lambda: parse(text)) for _ in range(repeat))
    full = min(cpu_time(lambda: parse(text, lazy=False)) for _ in range(repeat))
    return lazy, full


def main() -> None:
    """Print the tables."""
    beside = Path(__file__).resolve().parent.parent.parent / "shared"
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--corpus", type=Path, default=beside)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.peak:
        print_peak(options.peak[0], Path(options.peak[1]))
        return
    print_table(options.corpus, options.repeat)
    print_growth_and_memory(options.corpus, options.repeat)


if __name__ == "__main__":
    main()
