"""Compiles training steps by XLA:CPU to a share of their temporaries, runs them, prints a table.

    python -m tools.measure_fits [--share 0.5] [--only NAME …] [--write docs/measurements.md]

Needs jax 0.10.2 or later. The programs are the training steps of `tools.programs.fitted`. For each:
XLA's report of temporaries as it compiles them and with `hlomem.jax.optimize(fit=…)`, whether they
fit, the operations added by XLA's own cost analysis and by our count, whether XLA reports what was
planned, whether all results are equal to the bit on random inputs, the CPU time of a run divided by
that of XLA's program, the least of several in turns, and the CPU time of the search and of XLA's
compile. `floor` is the share that a single instruction needs for itself, whatever is computed
again: no program of these instructions needs less. `--write` puts the table into a document,
between the lines that mark its place. The exit code is 1 if a result differs, or a report is not as
planned.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hlomem.jax
from hlomem import hlo
from hlomem.jax.pass_ import log
from hlomem.opt.remat.floor import find_floor
from hlomem.pipeline import in_text_order, start_stages
from tools.programs.fitted import FIT_PROGRAMS
from tools.tables import put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.programs.parts import Program

jax: Any = import_module("jax")
numpy: Any = import_module("numpy")

_KINDS = ("_train", "_adam", "_remat", "flax_")
STEPS = (
    *(name for name in FIT_PROGRAMS if any(kind in name for kind in _KINDS)),
    *("drop", "moe"),
)


def main(arguments: Sequence[str]) -> int:
    """Measure; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--only", nargs="*", default=STEPS, choices=STEPS)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for name in options.only:
        row = _measure(name, FIT_PROGRAMS[name], options.share)
        if row is not None:
            rows.append(row)
            print(_line(row), flush=True)
    print(_total(rows, options.share))
    if options.write:
        put(options.write, f"fits, cpu, {options.share:g}", _table(rows, options.share))
    return 0 if all(row.is_planned and row.is_equal for row in rows) else 1


class Row(NamedTuple):
    """One program."""

    name: str
    before: int
    after: int
    floor: int
    fits: bool
    flops: float
    own_flops: float
    stacks: int
    clones: int
    is_planned: bool
    is_equal: bool
    run_time: float
    search: float
    compile: float


_HEAD = (
    "| program | before | share | floor | fits | FLOPs (XLA) | FLOPs (ours) | stacks | clones |"
    " planned | bits | run time | search | compile |\n"
    "|---|---:|---:|---:|---|---:|---:|---:|---:|---|---|---:|---:|---:|"
)


def _line(row: Row) -> str:
    return (
        f"| {row.name} | {row.before / 1e6:.2f} MB | {row.after / row.before:.3f} |"
        f" {row.floor / row.before:.3f} | {'yes' if row.fits else 'no'} | {row.flops:+.1%} |"
        f" {row.own_flops:+.1%} | {row.stacks} | {row.clones} |"
        f" {'yes' if row.is_planned else 'NO'} | {'equal' if row.is_equal else 'OTHER'} |"
        f" {row.run_time:.2f}× | {row.search:.1f} s |"
        f" {row.compile:.1f} s |"
    )


def _total(rows: Sequence[Row], share: float) -> str:
    fits = [row for row in rows if row.fits]
    mean = sum(row.own_flops for row in fits) / max(len(fits), 1)
    low = [row for row in rows if not row.fits and row.floor > share * row.before]
    return (
        f"{len(fits)} of {len(rows)} fit {share:g} of XLA's temporaries, for {mean:+.1%} operations"
        f" in the mean of these; {len(low)} of the others cannot, since a single instruction needs"
        " more. Results are equal to the bit in"
        f" {sum(row.is_equal for row in rows)}, reports as planned in"
        f" {sum(row.is_planned for row in rows)}."
    )


def _table(rows: Sequence[Row], share: float) -> str:
    return "\n".join([_HEAD, *map(_line, rows), "", _total(rows, share)])


def _measure(name: str, program: Program, share: float) -> Row | None:
    function = jax.jit(program.function, donate_argnums=program.donated)
    jax.clear_caches()
    started = time.process_time()
    plain = function.lower(*program.arguments).compile()
    compiled = time.process_time() - started
    sizes = plain.memory_analysis()
    before = sizes.temp_size_in_bytes
    rest = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    log.forget()
    with hlomem.jax.optimize(fit=int(rest + share * before) + _SLACK, platforms="cpu"):
        fitted = function.lower(*program.arguments).compile()
    outcome = log.report().outcomes[-1]
    after = fitted.memory_analysis().temp_size_in_bytes
    if not before:
        return None
    runs = [_runs(one, program) for one in (plain, fitted)]
    times: list[list[float]] = [[], []]
    for _ in range(MAX_RUNS):
        for run, spent in zip(runs, times, strict=True):
            started = time.process_time()
            run()
            spent.append(time.process_time() - started)
    flops = fitted.cost_analysis()["flops"] / plain.cost_analysis()["flops"] - 1
    return Row(
        name,
        before,
        after,
        _floor(plain),
        not outcome.missing,
        flops,
        outcome.flops / max(outcome.program_flops, 1),
        outcome.stacks,
        outcome.clones,
        outcome.kind != "improved" or outcome.after == after,
        _bits(runs[0]()) == _bits(runs[1]()),
        min(times[1]) / max(min(times[0]), 1e-9),
        outcome.seconds,
        compiled,
    )


MAX_RUNS = 7


def _floor(compiled: Any) -> int:
    """Bytes that the hungriest instruction needs for itself."""
    stages = start_stages(hlo.parse(compiled.as_text()), order_lists=in_text_order)
    return find_floor(stages).size


_SLACK = 4096
"""Bytes of constants and tables, which XLA's report does not count among arguments or results."""


def _runs(compiled: Any, program: Program) -> Callable[[], list[Any]]:
    """A run on the same random inputs each time."""
    chance = numpy.random.default_rng(7)

    def make(shape: Any) -> Any:
        if numpy.issubdtype(shape.dtype, numpy.floating):
            return chance.normal(size=shape.shape).astype(shape.dtype) * 0.1
        return chance.integers(0, 8, shape.shape).astype(shape.dtype)

    arrays = jax.tree.map(make, program.arguments)

    def run() -> list[Any]:
        given = jax.tree.map(jax.numpy.array, arrays)
        return list(jax.block_until_ready(jax.tree.leaves(compiled(*given))))

    return run


def _bits(leaves: list[Any]) -> list[bytes]:
    return [numpy.asarray(leaf).tobytes() for leaf in leaves]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
