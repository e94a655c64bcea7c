"""Parsing against XLA's own parser: CPU time, growth and peak memory, in one run.

    python -m bench.bench_parse [--corpus ../shared] [--repeat 5]

Needs jaxlib beside hlomem for the comparison; without it only hlomem's times are printed. A ratio
above 1 means that hlomem is faster (or smaller). "lazy" is what planning needs, "full" reads and
checks fused bodies and attributes, too. Times are the best of some turns in which all parsers take
part; freeing the result is not counted. Memory is the peak of a fresh process that reads one file,
less that of a bare interpreter.
"""

from __future__ import annotations

import argparse
import gc
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

if "--peak" not in sys.argv:  # the process measured imports what it needs itself
    from hlomem.hlo import parse

    try:
        from jaxlib import _hlo
    except ImportError:
        _hlo = None

SMALLEST = 100_000
REFERENCE = "real/cpu/hlo_llama31_8b_bf16_1x8/module.hlo"


def cpu_time(work: Callable[[], object]) -> float:
    """CPU seconds of one run; what an earlier one left behind is collected before."""
    gc.collect()
    start = time.process_time()
    result = work()
    seconds = time.process_time() - start
    del result
    return seconds


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
    """A module that calls ten copies of another, each under names of its own.

    The calls take no operands, so that the new entry adds next to nothing; nobody runs it.
    """
    entry = parse(text).entry
    header, _, body = text.partition("\n\n")
    pieces = [header.partition(",")[0] + "\n"]
    lines: list[str] = []
    for copy in range(10):
        pieces.append(body.replace("ENTRY %", "%").replace("%", f"%copy{copy}."))
        call = f"{entry.root.shape} call(), to_apply=%copy{copy}.{entry.name}"
        lines.append(f"  %call{copy} = {call}")
    calls = ", ".join(f"%call{copy}" for copy in range(10))
    lines.append(f"  ROOT %all = () tuple({calls})")
    return "\n".join([*pieces, "ENTRY %all_copies {", *lines, "}\n"])


def peak_memory(which: str, path: Path) -> float:
    """Megabytes a fresh process holds at most, more than one that does nothing."""
    peaks = []
    for arguments in (["--peak", "nothing", ""], ["--peak", which, str(path)]):
        command = [sys.executable, __file__, *arguments]
        peaks.append(float(subprocess.run(command, check=True, capture_output=True).stdout))
    return peaks[1] - peaks[0]


def print_peak(which: str, path: Path) -> None:
    """Run in the fresh process, before anything is imported that `which` does not need."""
    if which == "hlomem":
        from hlomem.hlo.text.parser import parse as parse_lazily  # noqa: PLC0415

        module = parse_lazily(path.read_text(encoding="utf-8"))
    elif which == "xla":
        from jaxlib import _hlo as xla  # noqa: PLC0415

        module = xla.hlo_module_from_text(path.read_text(encoding="utf-8"))
    else:
        module = None
    status = Path("/proc/self/status").read_text(encoding="ascii")
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)
    del module


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
    small = (corpus / "real/cpu/gemma3_1b_flax_call/module.hlo").read_text(encoding="utf-8")
    small = re.sub(r"^((?:ENTRY )?%\S+) \(.*\{$", r"\1 {", small, flags=re.MULTILINE)
    large = ten_copies(small)
    lazy, full = measure_ours(small, repeat)
    lazy_ten, full_ten = measure_ours(large, repeat)
    print(f"ten copies, all called: lazy x {lazy_ten / lazy:.1f}, full x {full_ten / full:.1f}")
    reference = corpus / REFERENCE
    ours = peak_memory("hlomem", reference)
    theirs = peak_memory("xla", reference) if _hlo else float("nan")
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
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.peak:
        print_peak(options.peak[0], Path(options.peak[1]))
        return
    print_table(options.corpus, options.repeat)
    print_growth_and_memory(options.corpus, options.repeat)


if __name__ == "__main__":
    main()
