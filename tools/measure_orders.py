"""Compiles programs by XLA:CPU with and without hlomem's pass, runs both, and prints tables.

    python -m tools.measure_orders [--corpus FOLDER] [--only NAME …] [--effort default]
                                   [--json FILE] [--write docs/measurements.md]

Needs jax 0.10.2 or later. Which programs, and why those, is said in `tools.programs.subjects`. For
each: XLA's report of temporaries in its default order, in that of its memory-optimised scheduler,
and with the pass; what the order alone comes to, and the bound below which no order goes; what is
recomputed, and its price in operations and modelled time; whether the pass forecast the size;
whether all results are equal to the bit on random inputs; the CPU time of a run (the least of
several, taken in turns), of XLA's compile, and of the search. `--json` keeps what was measured:
programs that are in the file are not measured again. `--write` puts the tables into a document,
between the lines that mark their place. The exit code is 1 if an order needs more, or a result
differs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.corpus import BESIDE
from tools.tables import known, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.programs.subjects import Subject

MAX_RUNS = 10
MAX_SECONDS = 2.0
"""CPU time after which a program is not run again; it has run once each way."""
MAX_RUN_BYTES = 1 << 30
"""Programs with more temporaries than this are compiled, not run."""
LEAST_RATIO = 0.2
"""What a smaller ratio counts as in a mean, so that no single program decides it."""


class Row(NamedTuple):
    """One program."""

    group: str
    name: str
    before: int
    """Bytes of temporaries in XLA's default order."""
    flagged: int
    """The same by its memory-optimised scheduler."""
    after: int
    """The same with the pass."""
    forecast: int | None
    """What the pass said; None where it did nothing."""
    bound: int | None
    is_equal: bool | None
    """None where the program was not run."""
    slowdown: float | None
    """The CPU time of a run with the pass, divided by that without."""
    compile_seconds: float
    """CPU time of XLA's compile."""
    search_seconds: float
    verdict: str = ""
    """How good our order is known to be."""
    ordered: int = 0
    """Temporaries in our order alone, as forecast."""
    clones: int = 0
    stacks: int = 0
    flops: float = 0.0
    """Operations that are added, as a share."""
    time: float = 0.0
    """Modelled time that is added, as a share."""

    @property
    def order_ratio(self) -> float:
        return self.ordered / self.before if self.before else 1.0

    @property
    def is_closed(self) -> bool:
        """Whether no order is known to be possible that keeps less alive."""
        return self.verdict in ("at the bound", "proven") or not self.before

    @property
    def least_ratio(self) -> float:
        """The ratio of the order alone, or where a better one may exist what none can go below."""
        if self.is_closed:
            return self.order_ratio
        return min(self.order_ratio, (self.bound or 0) / self.before)

    @property
    def ratio(self) -> float:
        return self.after / self.before if self.before else 1.0

    @property
    def ratio_to_better(self) -> float:
        better = min(self.before, self.flagged)
        return self.after / better if better else 1.0


def measure(subject: Subject, effort: str, min_bytes: int) -> Row:
    """Compile a program three ways, and run two of them if it counts."""
    start = time.process_time()
    plain = subject.compile()
    compile_seconds = time.process_time() - start
    flagged = subject.compile_flagged()
    better, outcome = subject.compile_better(effort)
    before, after = _temporaries(plain), _temporaries(better)
    slowdown, is_equal = None, None
    if min_bytes <= before <= MAX_RUN_BYTES:
        slowdown, is_equal = _run_both(plain, better, subject)
    return Row(
        subject.group,
        subject.name,
        before,
        _temporaries(flagged),
        after,
        outcome.after if outcome.kind in ("improved", "kept") else None,
        outcome.bound,
        is_equal,
        slowdown,
        compile_seconds,
        outcome.seconds,
        outcome.verdict,
        outcome.ordered if outcome.kind in ("improved", "kept") else before,
        outcome.clones,
        outcome.stacks,
        outcome.flops / max(outcome.program_flops, 1),
        outcome.time_ratio - 1,
    )


def _temporaries(compiled: Any) -> int:
    return int(compiled.memory_analysis().temp_size_in_bytes)


def _run_both(plain: Any, better: Any, subject: Subject) -> tuple[float, bool]:
    jax: Any = import_module("jax")
    arrays = _random_arrays(subject)
    times: dict[int, list[float]] = {0: [], 1: []}
    results: dict[int, Any] = {}
    while len(times[1]) < MAX_RUNS and sum(times[0]) + sum(times[1]) < MAX_SECONDS:
        for number, compiled in enumerate((plain, better)):
            arguments = _on_devices(subject, arrays)
            start = time.process_time()
            results[number] = jax.block_until_ready(compiled(*arguments))
            times[number].append(time.process_time() - start)
    pairs = zip(*map(jax.tree.leaves, (results[0], results[1])), strict=True)
    is_equal = all(one.tobytes() == other.tobytes() for one, other in map(_as_numpy, pairs))
    return min(times[1]) / min(times[0]), is_equal


def _as_numpy(pair: Sequence[Any]) -> list[Any]:
    numpy: Any = import_module("numpy")
    return [numpy.asarray(array) for array in pair]


def _random_arrays(subject: Subject) -> Any:
    """The same numbers every time."""
    jax: Any = import_module("jax")
    numpy: Any = import_module("numpy")
    chance = numpy.random.default_rng(7)

    def array(shape: Any) -> Any:
        if jax.numpy.issubdtype(shape.dtype, jax.numpy.inexact):
            return (chance.standard_normal(shape.shape, "float32") * 0.1).astype(shape.dtype)
        return chance.integers(0, 8, shape.shape).astype(shape.dtype)

    return jax.tree.map(array, subject.arguments)


def _on_devices(subject: Subject, arrays: Any) -> Any:
    """Arrays of their own, which a donation may overwrite."""
    jax: Any = import_module("jax")
    return jax.tree.map(
        lambda shape, array: jax.device_put(array.copy(), shape.sharding), subject.arguments, arrays
    )


# Tables.


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _clipped_mean(values: Sequence[float]) -> float:
    return _mean([max(value, LEAST_RATIO) for value in values])


def tables(rows: Sequence[Row], min_bytes: int) -> str:
    """The rows that count as Markdown, and what they come to."""
    chosen = [row for row in rows if row.before >= min_bytes]
    groups = list(dict.fromkeys(row.group for row in rows))
    return "\n".join(
        [
            _SUMMARY_HEAD,
            *[_summary(group, [row for row in chosen if row.group == group]) for group in groups],
            _summary("all of these", chosen),
            _summary("with those below 64 KiB", rows),
            "",
            _totals(chosen),
            "",
            _HEAD,
            *[_line(row) for row in chosen],
        ]
    )


_SUMMARY_HEAD = (
    "| programs | | to XLA's default | order alone | to the better of XLA's two | XLA's second "
    "| in bytes | bound | smaller in | larger in |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)
_HEAD = (
    "| program | XLA | XLA, memory | hlomem | ratio | order alone | to better | bound | again "
    "| forecast | bits | run time | compile | search |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---|---|---|---:|---:|---:|"
)


def _summary(name: str, rows: Sequence[Row]) -> str:
    counted = [row for row in rows if row.before]
    figures = [
        _clipped_mean([row.ratio for row in rows]),
        _clipped_mean([row.order_ratio for row in rows]),
        _clipped_mean([row.ratio_to_better for row in rows]),
        _clipped_mean([row.flagged / row.before for row in counted]),
        sum(row.after for row in rows) / sum(row.before for row in rows),
        _clipped_mean([(row.bound or 0) / row.before for row in counted]),
    ]
    smaller = sum(row.after < row.before for row in rows)
    larger = sum(row.after > row.before for row in rows)
    means = " | ".join(f"{figure:.3f}" for figure in figures)
    return f"| {name} | {len(rows)} | {means} | {smaller} | {larger} |"


def _totals(rows: Sequence[Row]) -> str:
    run = [row for row in rows if row.is_equal is not None]
    exact = sum(row.forecast == row.after for row in rows)
    slower = [row for row in rows if row.search_seconds > row.compile_seconds]
    searched = sum(row.search_seconds for row in rows)
    compiled = sum(row.compile_seconds for row in rows)
    slowdowns = [row.slowdown for row in rows if row.slowdown is not None]
    names = ", ".join(row.name for row in slower) or "none"
    closed = sum(row.is_closed for row in rows)
    again = [row for row in rows if row.clones or row.stacks]
    return (
        f"In {len(again)} of {len(rows)} values are recomputed, for "
        f"{_share([row.flops for row in again])} operations and "
        f"{_share([row.time for row in again])} modelled time in the mean of these. "
        f"Forecast exact in {exact} of {len(rows)}. Run: {len(run)}, bits equal in "
        f"{sum(bool(row.is_equal) for row in run)}; run time {_mean(slowdowns):.2f}× (geometric "
        f"mean). The search took {searched:.0f} s where XLA's compile took {compiled:.0f} s; "
        f"longer than it: {names}. In {closed} the order alone meets the bound, or all orders were "
        "looked through and none keeps less alive; if all others reached their bounds, orders "
        f"alone would come to {_clipped_mean([row.least_ratio for row in rows]):.3f}."
    )


def _share(shares: Sequence[float]) -> str:
    return f"{sum(shares) / max(len(shares), 1):+.1%}"


def _again(row: Row) -> str:
    parts = [f"{row.clones}"] if row.clones else []
    parts += [f"{row.stacks} stacks"] if row.stacks else []
    price = f": {row.flops:+.1%}, {row.time:+.1%}" if parts else ""
    return f"{', '.join(parts)}{price}"


def _line(row: Row) -> str:
    forecast = "exact" if row.forecast == row.after else f"{row.forecast}"
    bits = {True: "equal", False: "DIFFER", None: "not run"}[row.is_equal]
    bound = f"{row.bound / row.before:.3f}" if row.bound is not None else ""
    slowdown = f"{row.slowdown:.2f}×" if row.slowdown is not None else ""
    sizes = f"{row.before:,} | {row.flagged:,} | {row.after:,}"
    ratios = f"{row.ratio:.3f} | {row.order_ratio:.3f} | {row.ratio_to_better:.3f} | {bound}"
    times = f"{slowdown} | {row.compile_seconds:.2f} s | {row.search_seconds:.2f} s"
    return f"| {row.name} | {sizes} | {ratios} | {_again(row)} | {forecast} | {bits} | {times} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--corpus", type=Path, default=BESIDE, help="default: %(default)s")
    parser.add_argument("--only", nargs="*", default=[], help="programs, or groups of them")
    parser.add_argument("--effort", default="default")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args(arguments)
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    programs = import_module("tools.programs.subjects")
    rows = known(options.json, Row)
    measured = {(row.group, row.name) for row in rows}

    def is_wanted(group: str, name: str) -> bool:
        is_named = not options.only or not {group, name}.isdisjoint(options.only)
        return is_named and (group, name) not in measured

    for subject in programs.iter_subjects(options.corpus, is_wanted):
        rows.append(measure(subject, options.effort, programs.MIN_BYTES))
        print(subject.name, f"{rows[-1].ratio:.3f}", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps([row._asdict() for row in rows], indent=1))
    text = tables(rows, programs.MIN_BYTES)
    print(text)
    if options.write:
        put(options.write, "orders", text)
    return int(any(row.after > row.before or row.is_equal is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
