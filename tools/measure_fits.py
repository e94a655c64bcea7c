"""Compiles programs by XLA:CPU to shares of their temporaries, runs them, prints tables.

    python -m tools.measure_fits [--share 0.5 …] [--only NAME …] [--write docs/measurements.md]
    python -m tools.measure_fits --programs FOLDER --optimize --share 0.5 0.25 --keep ROWS.jsonl

Needs jax 0.10.2 or later. The programs are the training steps of `tools.programs.fitted`, or those
of a folder (`tools.programs.folder`). For each: XLA's report of temporaries as it compiles them and
with `hlomem.jax.optimize(fit=SHARE)`, whether they fit, the operations added by XLA's own cost
analysis and by our count, whether XLA reports what was planned, whether all results are equal to
the bit on random inputs, the CPU time of a run divided by that of XLA's program, the least of
several in turns, and the CPU time of the search and of XLA's compile. `floor` is the share that
no recomputation goes below (`hlomem.opt.remat.floor`). `--optimize` measures `optimize()` without a
budget, too. Programs above `--run-below` bytes of temporaries are compiled and not run, those below
64 KiB left out. `--keep` writes a row as soon as it is there, and begins after those of the file.
`--write` puts a table into a document, between the lines that mark its place. The exit code is 1 if
a result differs, a report is not as planned, or a program is larger than XLA's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from importlib import import_module
from math import exp
from math import log as ln
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hlomem.jax
from hlomem import hlo
from hlomem.jax.pass_ import log
from hlomem.opt.remat.floor import find_floor
from hlomem.pipeline import in_text_order, start_stages
from tools.programs.folder import read_folder
from tools.tables import put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tools.programs.parts import Program

jax: Any = import_module("jax")
numpy: Any = import_module("numpy")

_KINDS = ("_train", "_adam", "_remat", "flax_")
_OTHERS = ("drop", "moe")


def main(arguments: Sequence[str]) -> int:
    """Measure; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=Path, metavar="FOLDER")
    parser.add_argument("--share", type=float, nargs="*", default=[0.5])
    parser.add_argument("--optimize", action="store_true")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--run-below", type=float, default=256e6, metavar="BYTES")
    parser.add_argument("--keep", type=Path, metavar="FILE")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args(arguments)
    rows = _read_rows(options.keep)
    for row in _measure_all(options, {(row.name, row.share) for row in rows}):
        rows.append(row)
        print(_line(row), flush=True)
        if options.keep is not None:
            with options.keep.open("a") as file:
                file.write(json.dumps(row._asdict()) + "\n")
    for share in dict.fromkeys(row.share for row in rows):
        told = [row for row in rows if row.share == share]
        print(_total(told, share))
        if options.write and share:
            put(options.write, f"fits, cpu, {share:g}", _table(told, share))
    is_right = all(row.is_planned and row.is_equal and row.after <= row.before for row in rows)
    return 0 if is_right else 1


def _read_rows(file: Path | None) -> list[Row]:
    if file is None or not file.exists():
        return []
    return [Row(**json.loads(line)) for line in file.read_text().splitlines()]


def _measure_all(options: argparse.Namespace, known: set[tuple[str, float]]) -> Iterator[Row]:
    """The rows of all programs that are not known: `optimize()` alone is the share 0."""
    shares = [*([0.0] if options.optimize else []), *options.share]
    for name, make in _programs(options.programs).items():
        wanted = [share for share in shares if (name, share) not in known]
        if (options.only and name not in options.only) or name in options.skip or not wanted:
            continue
        try:
            yield from _measure(name, *make(), wanted, options.run_below)
        except Exception as error:  # noqa: BLE001 - told, and the next is measured
            print(f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")


def _programs(folder: Path | None) -> Mapping[str, Callable[[], tuple[Any, tuple[Any, ...]]]]:
    if folder is not None:
        return {name: program.make for name, program in read_folder(folder).items()}
    known = import_module("tools.programs.fitted").FIT_PROGRAMS  # which begins to work with JAX
    steps = [name for name in known if any(kind in name for kind in _KINDS)]
    return {name: partial(_jitted, known[name]) for name in (*steps, *_OTHERS)}


def _jitted(program: Program) -> tuple[Any, tuple[Any, ...]]:
    return jax.jit(program.function, donate_argnums=program.donated), program.arguments


class Row(NamedTuple):
    """One program."""

    name: str
    share: float
    """Of the temporaries; 0 without a budget."""
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
    """Where it was run."""
    run_time: float
    """0 where it was not run."""
    search: float
    compile: float


_HEAD = (
    "| program | before | share | floor | fits | FLOPs (XLA) | FLOPs (ours) | stacks | clones |"
    " planned | bits | run time | search | compile |\n"
    "|---|---:|---:|---:|---|---:|---:|---:|---:|---|---|---:|---:|---:|"
)


def _line(row: Row) -> str:
    fits = "" if not row.share else "yes" if row.fits else "no"
    bits = "not run" if not row.run_time else "equal" if row.is_equal else "OTHER"
    return (
        f"| {row.name} | {row.before / 1e6:.2f} MB | {row.after / row.before:.3f} |"
        f" {row.floor / row.before:.3f} | {fits} | {row.flops:+.1%} |"
        f" {row.own_flops:+.1%} | {row.stacks} | {row.clones} |"
        f" {'yes' if row.is_planned else 'NO'} | {bits} |"
        f" {row.run_time:.2f}× | {row.search:.1f} s |"
        f" {row.compile:.1f} s |"
    )


def _total(rows: Sequence[Row], share: float) -> str:
    ran = [row for row in rows if row.run_time]
    words = (
        f"Results are equal to the bit in {sum(row.is_equal for row in ran)} of {len(ran)}, reports"
        f" as planned in {sum(row.is_planned for row in rows)} of {len(rows)},"
        f" {sum(row.after > row.before for row in rows)} larger than XLA's; the search took longer"
        f" than XLA's compile in {sum(row.search > row.compile for row in rows)}."
    )
    if not share:
        mean = exp(sum(ln(max(row.after, 1) / row.before) for row in rows) / max(len(rows), 1))
        return (
            f"optimize(): {mean:.3f} of XLA's temporaries, geometric mean of {len(rows)}. {words}"
        )
    fits = [row for row in rows if row.fits]
    mean = sum(row.own_flops for row in fits) / max(len(fits), 1)
    low = [row for row in rows if not row.fits and row.floor > share * row.before]
    possible = len(rows) - len(low)
    return (
        f"{len(fits)} of {len(rows)} fit {share:g} of XLA's temporaries, for {mean:+.1%} operations"
        f" in the mean of these; {len(low)} of the others cannot, by the floor: {len(fits)} of"
        f" {possible} that can ({len(fits) / max(possible, 1):.0%}). {words}"
    )


def _table(rows: Sequence[Row], share: float) -> str:
    return "\n".join([_HEAD, *map(_line, rows), "", _total(rows, share)])


def _measure(
    name: str, function: Any, arguments: tuple[Any, ...], shares: Sequence[float], run_below: float
) -> Iterator[Row]:
    jax.clear_caches()
    lowered = function.lower(*arguments)
    started = time.process_time()
    plain = lowered.compile()
    compiled = time.process_time() - started
    before = plain.memory_analysis().temp_size_in_bytes
    if before < MIN_BYTES:
        return
    runs = _runs(plain, arguments) if before < run_below else None
    results = _bits(runs()) if runs is not None else []
    for share in shares:
        log.forget()
        with hlomem.jax.optimize(fit=share or None, platforms="cpu"):
            fitted = function.lower(*arguments).compile()
        outcome = log.report().outcomes[-1]
        after = fitted.memory_analysis().temp_size_in_bytes
        changed = _runs(fitted, arguments) if runs is not None else None
        is_equal = changed is None or _bits(changed()) == results
        ratio = _time_ratio(runs, changed) if runs is not None and changed is not None else 0.0
        operations = [one.cost_analysis().get("flops", 0) or 1 for one in (fitted, plain)]
        yield Row(
            name,
            share,
            before,
            after,
            _floor(plain),
            bool(share) and not outcome.missing,
            operations[0] / operations[1] - 1,
            outcome.flops / max(outcome.program_flops, 1),
            outcome.stacks,
            outcome.clones,
            outcome.kind != "improved" or outcome.after == after,
            is_equal,
            ratio,
            outcome.seconds,
            compiled,
        )


def _time_ratio(one: Callable[[], Any], other: Callable[[], Any]) -> float:
    """The CPU time of a run of the second by that of the first, the least of several in turns."""
    times: list[list[float]] = [[], []]
    for _ in range(MAX_RUNS):
        for run, spent in zip((one, other), times, strict=True):
            started = time.process_time()
            run()
            spent.append(time.process_time() - started)
    return max(min(times[1]) / max(min(times[0]), 1e-9), 1e-3)


MAX_RUNS = 3
MIN_BYTES = 1 << 16
"""Temporaries below which a program is left out, as `optimize` does."""


def _floor(compiled: Any) -> int:
    """Bytes that the hungriest instruction needs for itself."""
    stages = start_stages(hlo.parse(compiled.as_text()), order_lists=in_text_order)
    return find_floor(stages).size


def _runs(compiled: Any, arguments: tuple[Any, ...]) -> Callable[[], list[Any]]:
    """A run on the same random inputs each time."""
    chance = numpy.random.default_rng(7)

    def make(shape: Any) -> Any:
        if jax.numpy.issubdtype(shape.dtype, jax.numpy.inexact):
            return (chance.normal(size=shape.shape) * 0.1).astype(shape.dtype)
        return chance.integers(0, 2, shape.shape).astype(shape.dtype)

    def put_(array: Any, shape: Any) -> Any:
        sharding = getattr(shape, "sharding", None)
        return jax.numpy.array(array) if sharding is None else jax.device_put(array, sharding)

    arrays = jax.tree.map(make, arguments)

    def run() -> list[Any]:
        given = jax.tree.map(put_, arrays, arguments)
        return list(jax.block_until_ready(jax.tree.leaves(compiled(*given))))

    return run


def _bits(leaves: list[Any]) -> list[bytes]:
    return [numpy.asarray(leaf).tobytes() for leaf in leaves]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
