"""Looks for better orders of the corpus' programs and says what they would save, as planned.

    python -m tools.check_orders [--corpus FOLDER] [--json FILE]

The programs are those of the newest XLA for CPU and GPU, and those from production, with more than
16 KiB of temporaries. Every order is judged by `hlomem.opt.checks.order`; the exit code is 1 if one
is wrong or needs more than XLA's.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt.checks.order import check_orders
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.orders.search import improve
from hlomem.pipeline import in_text_order, start_stages
from tools.corpus import check_all, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MIN_BYTES = 16 << 10
LEAST_RATIO = 0.2
"""What a smaller ratio counts as in the mean, so that no single program decides it."""
_GROUPS = {
    "corpus, CPU": ("corpus/cpu-0.12.0.1/*", "cpu", (0, 12, 0, 1)),
    "corpus, GPU": ("corpus/gpu-h200-0.11.2/*", "gpu", (0, 11, 2)),
    "production, CPU": ("real/cpu/*", "cpu", (0, 12, 0, 1)),
    "production, GPU": ("real/gpu/*", "gpu", (0, 11, 2)),
}


class Result(NamedTuple):
    """One program."""

    group: str
    name: str
    before: int
    after: int
    bound: int | None
    is_proven: bool
    problem: str
    seconds: float

    @property
    def ratio(self) -> float:
        return max(self.after / self.before, LEAST_RATIO)


def check(job: tuple[str, Path]) -> Result | None:
    """A program's better order; None where it has few temporaries."""
    group, home = job
    _, backend, version = _GROUPS[group]
    module = hlo.parse((home / "module.hlo").read_text())
    options = options_for(
        find_machine(backend, "h200" if backend == "gpu" else ""), Release("jaxlib", version)
    )
    stages = start_stages(module, options, order_lists=in_text_order)
    before = temporary_bytes(stages)
    if before < MIN_BYTES:
        return None
    start = time.process_time()
    found = improve(stages)
    seconds = time.process_time() - start
    problems = check_orders(module, found.orders)
    is_proven = all(order.is_proven for order in found.found)
    problem = problems[0] if problems else ""
    return Result(group, home.name, before, found.after, found.bound, is_proven, problem, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per group."""
    options = parse_arguments(__doc__, arguments)
    jobs = [
        (group, path.parent)
        for group, (pattern, _, _) in _GROUPS.items()
        for path in sorted(options.corpus.glob(f"{pattern}/module.hlo"))
    ]
    results = [result for result in check_all(check, jobs) if result is not None]
    print("| programs | | mean | smaller in | at the bound | proven | median s | most s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for group in _GROUPS:
        chosen = [result for result in results if result.group == group]
        if chosen:
            print(_line(group, chosen))
    if options.json:
        options.json.write_text(json.dumps([result._asdict() for result in results], indent=1))
    wrong = [result for result in results if result.problem or result.after > result.before]
    for result in wrong:
        print(f"{result.group}, {result.name}: {result.problem or 'needs more'}")
    return int(bool(wrong))


def _line(group: str, results: Sequence[Result]) -> str:
    mean = math.exp(sum(math.log(result.ratio) for result in results) / len(results))
    smaller = sum(result.after < result.before for result in results)
    bound = sum(result.bound is not None and result.after <= result.bound for result in results)
    proven = sum(result.is_proven for result in results)
    seconds = sorted(result.seconds for result in results)
    times = f"{seconds[len(seconds) // 2]:.1f} | {seconds[-1]:.1f}"
    return f"| {group} | {len(results)} | {mean:.3f} | {smaller} | {bound} | {proven} | {times} |"


if __name__ == "__main__":
    sys.exit(main())
