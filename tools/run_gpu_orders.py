"""Compiles large programs on a GPU with and without hlomem's pass, runs both, and prints a table.

    python -m tools.run_gpu_orders [--only NAME …] [--effort default] [--seconds 540] [--json FILE]
                                   [--share 0.5 --target cuda-h200]

Needs a GPU and jax 0.10.2 or later. For every program of `tools.programs.large`: XLA's report of
temporaries in its own order and in ours; whether it is what the pass forecast; how far the results
are apart on the same random inputs, beside how far two runs in XLA's order are; the time of a run
in our order divided by that in XLA's, medians of runs taken in turns. No program is begun when the
seconds are over. With `--share` values are computed again until that share of XLA's temporaries is
enough; `--target` says what the GPU is. The exit code is 1 if an order needs
more, or results are further apart than those of XLA's own order and a rounding.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNS = 9
TOLERANCE = 1e-5
"""How far results may be apart, as a share of the largest, beyond what repeated runs are."""
_MAX_WORD = 64


class Row(NamedTuple):
    """One program."""

    name: str
    before: int
    after: int
    forecast: int
    kind: str
    gap: float
    """The largest difference of a result, as a share of the largest number in it."""
    own_gap: float
    """The same between two runs in XLA's order."""
    time_ratio: float
    milliseconds: float
    """Of a run in XLA's order."""
    search_seconds: float

    @property
    def is_right(self) -> bool:
        return self.after <= self.before and self.gap <= max(2 * self.own_gap, TOLERANCE)


def measure(name: str, effort: Any, share: float | None = None, target: str = "") -> Row:
    """Compile and run a program both ways."""
    jax: Any = import_module("jax")
    hlomem_jax: Any = import_module("hlomem.jax")
    log: Any = import_module("hlomem.jax.pass_.log")
    program = import_module("tools.programs.large").LARGE_PROGRAMS[name]
    jitted = jax.jit(program.function, donate_argnums=program.donated)
    plain = jitted.lower(*program.arguments).compile()
    log.forget()
    fit = None if share is None else _limit(plain, share)
    with hlomem_jax.optimize(effort=effort, target=target, fit=fit):
        better = jitted.lower(*program.arguments).compile()
    outcome = max(hlomem_jax.report().outcomes, key=lambda found: found.before)
    print(outcome, outcome.reason, sep="; ", file=sys.stderr, flush=True)
    arguments = _random_arguments(program)
    first, again, ours = (_run(way, program, arguments)[0] for way in (plain, plain, better))
    gap, own_gap = _gap(first, ours), _gap(first, again)
    del first, again, ours
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        for way, seconds in zip((plain, better), times, strict=True):
            seconds.append(_run(way, program, arguments)[1])
    usual, changed = map(statistics.median, times)
    return Row(
        name,
        plain.memory_analysis().temp_size_in_bytes,
        better.memory_analysis().temp_size_in_bytes,
        outcome.after,
        outcome.kind,
        gap,
        own_gap,
        changed / usual,
        usual * 1e3,
        outcome.seconds,
    )


def _limit(plain: Any, share: float) -> int:
    """Bytes of all allocations with a share of the temporaries."""
    sizes = plain.memory_analysis()
    rest = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return int(rest + share * sizes.temp_size_in_bytes)


def _random_arguments(program: Any) -> Any:
    jax: Any = import_module("jax")
    leaves, tree = jax.tree.flatten(program.arguments)
    keys = jax.random.split(jax.random.key(0), len(leaves))

    def made(key: Any, leaf: Any) -> Any:
        if leaf.dtype == "int32":
            return jax.random.randint(key, leaf.shape, 0, _MAX_WORD)
        return 0.02 * jax.random.normal(key, leaf.shape, leaf.dtype)

    return jax.tree.unflatten(tree, list(map(made, keys, leaves)))


def _run(compiled: Any, program: Any, arguments: Any) -> tuple[Any, float]:
    """The results, and seconds; arguments that are given away are copied before."""
    jax: Any = import_module("jax")
    given = [
        jax.tree.map(jax.numpy.copy, argument) if number in program.donated else argument
        for number, argument in enumerate(arguments)
    ]
    jax.block_until_ready(given)
    start = time.perf_counter()
    results = jax.block_until_ready(compiled(*given))
    return results, time.perf_counter() - start


def _gap(one: Any, other: Any) -> float:
    jax: Any = import_module("jax")
    jnp: Any = import_module("jax.numpy")

    def apart(a: Any, b: Any) -> float:
        most = jnp.max(jnp.abs(a)).astype("float32")
        return float(jnp.max(jnp.abs(a - b)).astype("float32") / jnp.maximum(most, 1e-30))

    return max(jax.tree.leaves(jax.tree.map(apart, one, other)), default=0.0)


def table(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    lines = [
        "| program | XLA | hlomem | ratio | forecast | results | run time | ms |",
        "|---|---:|---:|---:|---|---|---:|---:|",
    ]
    for row in rows:
        results = "equal" if not row.gap else f"{row.gap:.1e} apart, XLA's {row.own_gap:.1e}"
        forecast = "exact" if row.forecast == row.after else f"{row.forecast - row.after:+,}"
        lines.append(
            f"| {row.name} | {row.before:,} | {row.after:,} | {row.after / row.before:.3f} |"
            f" {forecast} | {results} | {row.time_ratio:.2f}× | {row.milliseconds:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--effort", default="default")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--share", type=float)
    parser.add_argument("--target", default="")
    given = parser.parse_args(arguments)
    programs = import_module("tools.programs.large").LARGE_PROGRAMS
    start = time.monotonic()
    rows: list[Row] = []
    for name in given.only or programs:
        if time.monotonic() - start > given.seconds:
            print(f"{name}: no time left", file=sys.stderr)
            continue
        rows.append(measure(name, given.effort, given.share, given.target))
        print(rows[-1], f"{time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps([row._asdict() for row in rows], indent=1))
    print(table(rows))
    return int(not all(row.is_right for row in rows))


if __name__ == "__main__":
    sys.exit(main())
