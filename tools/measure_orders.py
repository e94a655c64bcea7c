"""Compiles JAX programs with and without hlomem's pass, runs both, and prints a table.

    python -m tools.measure_orders [--only NAME …] [--effort default] [--json FILE]

Needs jax 0.10.2 or later. For every program of `tools.order_programs`: XLA's report of temporaries
with its own order and with ours, whether it is the size the pass forecast, whether all results are
equal to the bit on random inputs, and the CPU time of a run (the least of several, taken in turns).
The exit code is 1 if an order needs more, or a result differs.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hlomem.jax
from hlomem.jax import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.order_programs import Program

RUNS = 15
LEAST_RATIO = 0.2
"""What a smaller ratio counts as in the mean, so that no single program decides it."""


class Row(NamedTuple):
    """One program."""

    name: str
    before: int
    after: int
    forecast: int | None
    """What the pass said; None where it did nothing."""
    is_equal: bool
    slowdown: float
    """The CPU time of a run in our order, divided by that in XLA's."""
    compile_seconds: float
    """CPU time of the search."""

    @property
    def ratio(self) -> float:
        return self.after / self.before if self.before else 1.0


def measure(name: str, program: Program, effort: Any) -> Row:
    """Compile and run a program both ways."""
    jax: Any = import_module("jax")
    jitted = jax.jit(program.function, donate_argnums=program.donated)
    plain = jitted.lower(*program.arguments).compile()
    log.forget()
    with hlomem.jax.optimize(effort=effort, min_bytes=0):
        better = jitted.lower(*program.arguments).compile()
    [outcome] = hlomem.jax.report().outcomes
    slowdown, is_equal = _run_both(plain, better, program)
    return Row(
        name,
        plain.memory_analysis().temp_size_in_bytes,
        better.memory_analysis().temp_size_in_bytes,
        outcome.after if outcome.kind in ("improved", "kept") else None,
        is_equal,
        slowdown,
        outcome.seconds,
    )


def _run_both(plain: Any, better: Any, program: Program) -> tuple[float, bool]:
    jax: Any = import_module("jax")
    times: dict[int, list[float]] = {0: [], 1: []}
    results: dict[int, Any] = {}
    for _ in range(RUNS):
        for number, compiled in enumerate((plain, better)):
            arguments = _random_arguments(program)
            start = time.process_time()
            results[number] = jax.block_until_ready(compiled(*arguments))
            times[number].append(time.process_time() - start)
    pairs = zip(*map(jax.tree.leaves, (results[0], results[1])), strict=True)
    is_equal = all(one.tobytes() == other.tobytes() for one, other in map(_as_numpy, pairs))
    return min(times[1]) / min(times[0]), is_equal


def _as_numpy(pair: Sequence[Any]) -> list[Any]:
    numpy: Any = import_module("numpy")
    return [numpy.asarray(array) for array in pair]


def _random_arguments(program: Program) -> Any:
    """The same numbers every time, in arrays of their own, which a donation may overwrite."""
    jax: Any = import_module("jax")
    numpy: Any = import_module("numpy")
    chance = numpy.random.default_rng(7)

    def array(shape: Any) -> Any:
        if shape.dtype.kind == "f":
            return jax.device_put(chance.normal(size=shape.shape).astype(shape.dtype) * 0.1)
        return jax.device_put(chance.integers(0, 8, shape.shape).astype(shape.dtype))

    return jax.tree.map(array, program.arguments)


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def print_table(rows: Sequence[Row]) -> None:
    """The rows as Markdown, and what they come to."""
    print("| program | XLA | hlomem | ratio | forecast | bits | run time | search |")
    print("|---|---:|---:|---:|---|---|---:|---:|")
    for row in rows:
        forecast = "exact" if row.forecast == row.after else f"{row.forecast}"
        bits = "equal" if row.is_equal else "DIFFER"
        sizes = f"{row.before:,} | {row.after:,} | {row.ratio:.3f}"
        times = f"{row.slowdown:.2f}× | {row.compile_seconds:.2f} s"
        print(f"| {row.name} | {sizes} | {forecast} | {bits} | {times} |")
    ratios = [max(row.ratio, LEAST_RATIO) for row in rows]
    exact = sum(row.forecast == row.after for row in rows)
    print()
    print(
        f"{len(rows)} programs: temporaries {_mean(ratios):.3f} of XLA's (geometric mean), "
        f"{sum(row.after for row in rows) / sum(row.before for row in rows):.3f} in bytes; "
        f"smaller in {sum(row.after < row.before for row in rows)}, "
        f"larger in {sum(row.after > row.before for row in rows)}; "
        f"forecast exact in {exact}; bits equal in {sum(row.is_equal for row in rows)}; "
        f"run time {_mean([row.slowdown for row in rows]):.2f}×."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--effort", default="default")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    programs = import_module("tools.order_programs").PROGRAMS
    rows = []
    for name, program in programs.items():
        if not options.only or name in options.only:
            rows.append(measure(name, program, options.effort))
            print(name, f"{rows[-1].ratio:.3f}", file=sys.stderr, flush=True)
    print_table(rows)
    if options.json:
        options.json.write_text(json.dumps([row._asdict() for row in rows], indent=1))
    return int(any(row.after > row.before or not row.is_equal for row in rows))


if __name__ == "__main__":
    sys.exit(main())
