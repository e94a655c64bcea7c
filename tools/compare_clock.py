"""Holds the model of time against what `tools.calibrate_families` measured; without a GPU.

    python -m tools.compare_clock FILE [--only FAMILY,...] [--worst 8] [--kernels NAME]

For each family, of whole programs and of the instructions that the profiler saw: how many, measured
time divided by modelled (lowest, geometric mean, highest, and the mean distance of it from one, as
a factor), their rank correlation, and the cases that are furthest off. `--kernels` lists the
instructions of the cases whose names begin so. What the model says is computed anew: change
`hlomem.opt.orders.speeds` or a rule, and run it again.

A program's time is that of one of many calls. A call takes the host some 40 us, and to start each
kernel apart 3 us, which the device waits for if its kernels take less: where every instruction runs
once, the sum of its kernels and what lies between two of a graph is taken if it is less. Of a case
measured apart and as a graph only the graph counts, which is what the model is of. Loops whose
passes no program tells are left out.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import statistics
import sys
import zlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.hlo.opcodes import RUN_IN_PLACE
from hlomem.machines.registry import find_machine
from hlomem.opt.orders.cost import Times, module_time
from hlomem.opt.orders.speeds import speeds_of
from hlomem.opt.orders.trips import count_trips, is_counted
from hlomem.proto.module import read_module
from tools.run_gpu_fits import rank_correlation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.hlo.ir import HloModule
    from hlomem.machines.machine import Machine

Row = dict[str, Any]
BETWEEN = 0.3e-6
"""Seconds between two kernels of a graph: 100 whose kernels take 90 us take 118."""
AS_GRAPH = ", graph"
"""How names end of cases whose kernels the compiler starts together."""
LEAST = 3e-6
"""Seconds below which a kernel's time is not compared."""


class Pair(NamedTuple):
    """The seconds of one case, or of one instruction of it."""

    family: str
    name: str
    measured: float
    modelled: float

    @property
    def ratio(self) -> float:
        return self.measured / self.modelled


def module_of(row: Row) -> HloModule:
    return read_module(zlib.decompress(base64.b85decode(row["module"])))


def whole_seconds(row: Row, module: HloModule) -> float:
    """The time of a program on the device."""
    seen = row.get("kernels", {}).values()
    if not seen or any(part.opcode in RUN_IN_PLACE for part in module.entry.instructions):
        return float(row["sustained"])
    kernels = sum(seconds + count * BETWEEN for seconds, count in seen) / row["runs"]
    return float(min(row["sustained"], kernels))


def is_told(module: HloModule) -> bool:
    """Whether the passes of all loops are known."""
    return all(
        is_counted(part) or count_trips(part) is not None
        for body in module.computations
        for part in body.instructions
        if part.opcode == "while"
    )


def whole_pairs(rows: Sequence[Row], machine: Machine) -> Iterator[Pair]:
    """Programs as the compiler starts them."""
    speeds = speeds_of(machine)
    assert speeds is not None
    names = {row["name"] for row in rows}
    for row in rows:
        if "least" not in row or "module" not in row or row["name"] + AS_GRAPH in names:
            continue
        module = module_of(row)
        seconds = whole_seconds(row, module)
        modelled = module_time(module, machine) / speeds.bandwidth
        if seconds > LEAST and modelled and is_told(module):
            yield Pair(row["family"], row["name"], seconds, modelled)


def kernel_pairs(rows: Iterable[Row], machine: Machine) -> Iterator[Pair]:
    """Instructions of entry computations, by what the profiler saw of their kernels.

    Without the launch, which the profiler does not count.
    """
    speeds = speeds_of(machine)
    assert speeds is not None
    for row in rows:
        if "kernels" not in row or "module" not in row:
            continue
        clock, seen = Times(machine), row["kernels"]
        for part in module_of(row).entry.instructions:
            if part.name not in seen:
                continue
            measured = seen[part.name][0] / row["runs"]
            modelled = clock.of(part) / speeds.bandwidth - speeds.launch
            if measured > LEAST and modelled > 0:
                name = f"{row['name']}: {part.opcode} {part.name}"
                yield Pair(row["family"], name, measured, modelled)


def summary(pairs: Sequence[Pair]) -> str:
    """One line of numbers."""
    ratios = sorted(pair.ratio for pair in pairs)
    off = math.exp(statistics.fmean(abs(math.log(ratio)) for ratio in ratios))
    rank = "    –"
    if len(pairs) > 2:
        times = ([pair.measured for pair in pairs], [pair.modelled for pair in pairs])
        rank = f"{rank_correlation(*times):5.3f}"
    mean = statistics.geometric_mean(ratios)
    numbers = f"{ratios[0]:7.2f} {mean:7.2f} {ratios[-1]:7.2f} {off:6.2f}"
    return f"{len(pairs):5} {numbers} {rank}"


def report(title: str, pairs: Sequence[Pair], worst: int) -> Iterator[str]:
    """A table by family, and the cases that are furthest off."""
    by_family: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_family[pair.family].append(pair)
    yield f"{title:24} cases  lowest    mean highest    off  rank   (measured / modelled)"
    for family, some in [*by_family.items(), *([("all", list(pairs))] if pairs else [])]:
        yield f"  {family:22} {summary(some)}"
    for family, some in by_family.items():
        yield f"  {family}:"
        for pair in sorted(some, key=lambda one: -abs(math.log(one.ratio)))[:worst]:
            yield f"  {pair.ratio:8.2f}  {_times(pair)}  {pair.name}"


def _times(pair: Pair) -> str:
    return f"{pair.measured * 1e6:10.1f} us, modelled {pair.modelled * 1e6:10.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how far the model is off, by family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="names of families, divided by commas")
    parser.add_argument("--worst", type=int, default=8)
    parser.add_argument("--kernels", default=None, metavar="NAME")
    given = parser.parse_args(arguments)
    rows = json.loads(given.file.read_text())["rows"]
    machine = find_machine("gpu", "h200")
    if given.kernels is not None:
        some = [row for row in rows if row["name"].startswith(given.kernels)]
        for pair in kernel_pairs(some, machine):
            print(f"{pair.ratio:8.2f}  {_times(pair)}  {pair.name}")
        return 0
    chosen = given.only.split(",") if given.only else []
    for title, found in (
        ("programs", whole_pairs(rows, machine)),
        ("instructions", kernel_pairs(rows, machine)),
    ):
        pairs = [pair for pair in found if not chosen or pair.family in chosen]
        print("\n".join(report(title, pairs, given.worst)))
    for row in rows:
        for failed in ("error", "kernels failed"):
            if failed in row:
                print(f"{row['name']}: {failed}: {row[failed][:200]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
