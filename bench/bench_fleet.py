"""Scanning a fleet: `python -m bench.bench_fleet [--corpus ../shared] [--modules 10000]`.

Makes a folder of many programs, the corpus again and again with modules renamed, and prints what a
scan of it costs with one and with two workers, what an unchanged one costs, and how long questions
take. Before that it holds the CPU time of scanning a program against that of `hlomem summary` on
it, both in this process and by turns.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hlomem.api.load import load_any
from hlomem.base.gc_pause import collector_off
from hlomem.dump.dump import Dump
from hlomem.fleet.finding import find_units
from hlomem.fleet.questions import answer
from hlomem.fleet.reading import ScanOptions, Task, read_unit
from hlomem.fleet.units import Unit
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import build_memory
from hlomem.report.data.summary import build_summary
from hlomem.report.screens.summary_text import draw_summary
from hlomem.report.screens.text import plain

ENTRIES = "corpus/*/*/meta.json"
COMPARED = 120
"""Programs whose scan is held against their summary."""
RUNS = 3
FILES = ("buffer-assignment.txt", "values.txt", "live-range.txt", "memory-usage-report.txt")
_NAME = re.compile(r"^(HloModule [\w.-]+)", re.MULTILINE)

SCAN = """
import resource, sys, time
from hlomem.fleet import scan
start = time.perf_counter()
done = scan([sys.argv[1]], sys.argv[2], run="a", workers=int(sys.argv[3]))
spent = time.perf_counter() - start
own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
cpu = [use.ru_utime + use.ru_stime for use in (own, others)]
print(done.read, done.skipped, done.errors, spent, *cpu, others.ru_maxrss, own.ru_maxrss)
"""


def entries_of(corpus: Path) -> list[Path]:
    """The folders of dumps."""
    return [path.parent for path in sorted(corpus.glob(ENTRIES))]


def make_fleet(entries: list[Path], folder: Path, count: int) -> None:
    """So many programs: files that stay as they are become links, modules are renamed."""
    for number in range(count):
        entry = entries[number % len(entries)]
        target = folder / f"{number:05}_{entry.parent.name}_{entry.name}"
        target.mkdir(parents=True)
        for name in FILES:
            if (entry / name).exists():
                _link(entry / name, target / name)
        if (entry / "module.hlo").exists():
            text = (entry / "module.hlo").read_text(errors="surrogateescape")
            renamed = _NAME.sub(rf"\1_{number}", text, count=1)
            (target / "module.hlo").write_text(renamed, errors="surrogateescape")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def summarise(folder: Path) -> None:
    """What `hlomem summary` does, start-up and printing aside."""
    loaded = load_any(folder)
    assert isinstance(loaded, Dump)
    memory = build_memory(loaded)
    plain(draw_summary(build_summary(memory, find_space(memory)), 80))


def compare(entries: list[Path]) -> tuple[float, float]:
    """CPU seconds of summaries and of scans of the same programs, by turns, the best of several."""
    step = max(1, len(entries) // COMPARED)
    sums = [0.0, 0.0]
    gc.freeze()
    for entry in entries[::step]:
        [unit] = [
            unit
            for unit in find_units(str(entry), lambda _: False, 1 << 30)
            if isinstance(unit, Unit) and unit.kind == "dump"
        ]
        task = Task(unit=unit, options=ScanOptions())
        best = [1e9, 1e9]
        for _ in range(RUNS):
            for number in (0, 1):
                with collector_off():
                    start = time.process_time()
                    if number:
                        read_unit(task)
                    else:
                        summarise(entry)
                    best[number] = min(best[number], time.process_time() - start)
                gc.collect()
        sums = [total + spent for total, spent in zip(sums, best, strict=True)]
    return sums[0], sums[1]


def scan_figures(folder: Path, store: Path, workers: int) -> list[float]:
    """What a scan prints about itself, in a process of its own."""
    command = [sys.executable, "-c", SCAN, str(folder), str(store), str(workers)]
    done = subprocess.run(command, capture_output=True, check=True)
    return [float(word) for word in done.stdout.split()]


def print_scan(title: str, figures: list[float]) -> None:
    """One line of the table."""
    read, skipped, errors, wall, own, others, most, coordinator = figures
    count = read + skipped
    rate = f"{count / wall:7.1f}/s wall  {count / (own + others):7.1f}/s of CPU"
    memory = f"worker {most / 1024:5.0f} MiB, scan {coordinator / 1024:5.0f} MiB"
    cpu = f"CPU {others:6.1f} s workers + {own:5.1f} s scan"
    print(f"{title:12} {int(count)} programs, {int(errors)} errors: {rate}; {cpu}; {memory}")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path("../shared"))
    parser.add_argument("--modules", type=int, default=10_000)
    chosen = parser.parse_args()
    entries = entries_of(chosen.corpus)
    if not entries:
        print("no corpus: nothing was measured")
        return
    summary, scanned = compare(entries)
    print(
        f"a program    summary {summary:.3f} s, scan {scanned:.3f} s: {scanned / summary:.2f} times"
    )
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name, "programs"), Path(name, "store")
        make_fleet(entries, folder, chosen.modules)
        first = scan_figures(folder, Path(name, "other"), 1)
        second = scan_figures(folder, store, 2)
        print_scan("1 worker", first)
        print_scan("2 workers", second)
        print(f"scaling      {first[3] / second[3]:.2f} from 1 to 2 workers, by the wall")
        print_scan("unchanged", scan_figures(folder, store, 2))
        for question, options in (("top", {}), ("lines", {}), ("over", {"capacity": "v5e"})):
            start = time.perf_counter()
            answer(str(store), question, **options)  # type: ignore[arg-type]
            print(f"ask {question:8} {time.perf_counter() - start:.3f} s wall")


if __name__ == "__main__":
    main()
