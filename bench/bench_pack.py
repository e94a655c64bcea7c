"""Packing: hard problems, and the heaps of programs as XLA packs them.

    python -m bench.bench_pack [--corpus ../shared] [--effort 20000] [--heaps all|none|cpu|gpu|tpu]

First the problems of packing/ (MiniMalloc's A to K): whether they fit their capacity, the steps of
exact search and the CPU time that takes, beside what MiniMalloc's C++ took. Then the same with time
running backwards, which nothing here was chosen by. Then every heap of the modules in real/ and
corpus/, as buffer assignment hands it over (`hlomem.plan(pack=...)`): XLA's height and ours, the
lower bound, and what is known. Every packing is checked. Processes do one thing at a time; CPU time
is of this process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import hlomem
from hlomem.assign.packing import pack_best
from hlomem.base.errors import HlomemError
from hlomem.base.source import Source
from hlomem.packer.buffers import Buffer, Packing
from hlomem.packer.check import find_problems
from hlomem.packer.table import read_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.assign.packing import BufferInterval
    from hlomem.assign.packing import Packing as XlaPacking

HARD_EFFORT = 400_000
MINIMALLOC_SECONDS = dict(
    zip("ABCDEFGHIJK", (6.6, 5.2, 0.8, 3.9, 5.0, 6.6, 2.0, 3.3, 5.0, 1.2, 0.9), strict=True)
)
"""What MiniMalloc's C++ took for each problem, forwards, as measured once; it is not run here."""
LARGE = 32 << 10


class Heap(NamedTuple):
    """A heap of a program, packed by XLA's algorithm and by ours."""

    name: str
    buffers: int
    theirs: int
    ours: Packing
    seconds: float


def checked(buffers: Sequence[Buffer], packing: Packing) -> Packing:
    """The packing, if it is right."""
    problems = find_problems(buffers, packing.offset_of, packing.height)
    if problems:
        sys.exit(f"a wrong packing: {problems[0]}")
    return packing


def measure_hard(corpus: Path) -> None:
    """A to K, forwards and backwards."""
    print(
        f"{'problem':<8} {'buffers':>8} {'time':>10} {'outcome':<24} {'steps':>8} {'CPU':>9}"
        f" {'C++ had':>9}"
    )
    for path in sorted(corpus.glob("packing/*.csv")):
        name, capacity, _ = path.name.split(".")
        forwards = read_problem(Source(path.name, path.read_text())).buffers
        backwards = [Buffer(b.id, -b.upper, -b.lower, b.size) for b in forwards]
        theirs = f"{MINIMALLOC_SECONDS[name]:>7.1f} s"
        for direction, buffers, other in (
            ("forwards", forwards, theirs),
            ("backwards", backwards, ""),
        ):
            start = time.process_time()
            packing = hlomem.pack(buffers, capacity=int(capacity), effort=HARD_EFFORT)
            seconds = time.process_time() - start
            checked(buffers, packing)
            print(
                f"{name:<8} {len(buffers):>8} {direction:>10} {packing.status:<24}"
                f" {packing.steps:>8} {seconds:>7.2f} s {other}",
                flush=True,
            )


def heaps_of(entry: Path, effort: int) -> Iterator[Heap]:
    """The heaps buffer assignment asks for while a module is planned."""
    found: list[tuple[Sequence[BufferInterval], int]] = []

    def pack(intervals: Sequence[BufferInterval], alignment: int) -> XlaPacking:
        found.append((intervals, alignment))
        return pack_best(intervals, alignment)

    meta = json.loads((entry / "meta.json").read_text())
    is_tpu = meta["backend"] == "tpu"
    dump = hlomem.load(entry / "buffer-assignment.txt") if is_tpu or not meta["scheduled"] else None
    package = "libtpu" if is_tpu else "jaxlib"
    hlomem.plan(
        (entry / "module.hlo").read_text(encoding="utf-8"),
        backend=meta["backend"],
        chip=meta.get("chip") or "",
        era=f"{package}-{meta['versions'][package]}",
        schedule=None if meta["scheduled"] else dump,
        preset=dump if is_tpu else None,
        pack=pack,
    )
    for intervals, alignment in found:
        theirs = pack_best(intervals, alignment).heap_size
        buffers = [as_buffer(interval, alignment) for interval in intervals]
        start = time.process_time()
        ours = checked(buffers, hlomem.pack(buffers, effort=effort))
        seconds = time.process_time() - start
        yield Heap(entry.name, len(buffers), theirs, ours, seconds)


def as_buffer(interval: BufferInterval, alignment: int) -> Buffer:
    """A buffer whose lives do not include their ends."""
    more = tuple((start, end + 1) for start, end in interval.colocations)
    return Buffer(interval.id, interval.start, interval.end + 1, interval.size, alignment, more)


def measure_heaps(corpus: Path, effort: int, wanted: str) -> None:
    """The heaps of the corpus, those that are left open or that XLA packs worse by name."""
    heaps: defaultdict[str, list[Heap]] = defaultdict(list)
    for path in sorted(corpus.glob("*/*/*/meta.json")):
        backend = path.parts[-3].split("-")[0]
        group = f"{path.parts[-4]}/{backend}"
        if path.parts[-4] not in {"real", "corpus"} or wanted not in {"all", backend}:
            continue
        try:
            for heap in heaps_of(path.parent, effort):
                heaps[group].append(heap)
                if heap.ours.height < heap.theirs or heap.ours.height > heap.ours.lower_bound:
                    print_heap(heap)
        except HlomemError as error:
            print(f"{group}/{path.parent.name}: {str(error).splitlines()[0]}", flush=True)
    for group, members in heaps.items():
        print_group(group, members)
        print_group(f"{group}, 32 KiB on", [h for h in members if h.theirs >= LARGE])


def print_heap(heap: Heap) -> None:
    """One row."""
    ours = heap.ours
    print(
        f"{heap.name:<44} {heap.buffers:>6} {heap.theirs:>14} {ours.height:>14}"
        f" {ours.lower_bound:>14} {ours.status}, {ours.method}, {heap.seconds:.2f} s",
        flush=True,
    )


def print_group(group: str, heaps: Sequence[Heap]) -> None:
    """Sums."""
    counts = Counter(heap.ours.status for heap in heaps)
    optimal = sum(heap.theirs <= heap.ours.lower_bound for heap in heaps)
    above = sum(heap.ours.height > heap.theirs for heap in heaps)
    theirs = sum(heap.theirs for heap in heaps)
    ours = sum(heap.ours.height for heap in heaps)
    bound = sum(heap.ours.lower_bound for heap in heaps)
    print(
        f"{group}: {len(heaps)} heaps; XLA's optimal on {optimal}, ours {dict(counts)}, above XLA's"
        f" on {above}; bytes: XLA {theirs}, ours {ours}, bound {bound};"
        f" {sum(heap.seconds for heap in heaps):.1f} s",
        flush=True,
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    beside = Path(__file__).resolve().parent.parent.parent / "shared"
    parser.add_argument("--corpus", type=Path, default=beside)
    parser.add_argument("--effort", type=int, default=20_000, help="for the heaps of programs")
    parser.add_argument("--heaps", default="all", choices=["all", "none", "cpu", "gpu", "tpu"])
    options = parser.parse_args()
    if options.heaps in {"all", "none"}:
        measure_hard(options.corpus)
    if options.heaps != "none":
        measure_heaps(options.corpus, options.effort, options.heaps)


if __name__ == "__main__":
    main()
