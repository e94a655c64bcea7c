"""Fits large programs to a share of their temporaries on a machine that is not here, as a table.

    python -m tools.measure_accelerator_fits --target tpu-v5e:2x2 [--share 0.5] [--only NAME …]
                                             [--json FILE] [--write docs/measurements.md]

For programs of `tools.programs.large` with more than 1 GB of temporaries: those of XLA's plan, and
of the program that `hlomem.jax.optimize(fit=…)` hands over, both as the target's compiler plans
them; whether that fits; the operations that were added, by our count; how many programs were tried.
`--json` keeps what was measured: programs in the file are not measured again. `--write` puts the
table into a document, between the lines that mark its place. The exit code is 1 if a program needs
more than XLA's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import HlomemError
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.placeholder import planned_bytes, temporaries_of
from hlomem.jax.compile.scheduled_module import capture
from hlomem.jax.pass_.register import compiler_options
from hlomem.jax.pass_.transform import compiler_of
from hlomem.opt.candidate import Program, start_text
from hlomem.opt.goal import Rules
from hlomem.opt.orders.planned_orders import other_bytes
from hlomem.opt.search import find_order
from hlomem.opt.trials import try_fits
from hlomem.proto.module import read_module
from tools.tables import known, put

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_BYTES = 1_000_000_000
_FACTORY = "tools.programs.large:program"
_TIMEOUT = 1800.0


class Row(NamedTuple):
    """One program."""

    name: str
    share: float
    before: int
    after: int
    flops: float
    """Operations added, as a share of those there were."""
    stacks: int
    clones: int
    tried: int
    seconds: float
    reason: str


def measure(name: str, target: str, share: float) -> Row:
    """Fit a program to a share of what its compiler gives it."""
    job = Job(factory=_FACTORY, target=target, settings={"name": name})
    planned, proto = capture(job, _TIMEOUT, lambda _: None)
    before = temporaries_of(planned.dump)
    aim = planned.target
    options = compiler_options(aim.family, aim.machine.chip_name)
    stages = start_text(read_module(proto), options)
    rest = other_bytes(stages)
    start = time.process_time()
    found = find_order(Program(stages, Rules(), proto), "low")
    compiler = compiler_of(partial(planned_bytes, aim.name, aim.family))
    tried = try_fits(found, round(rest + share * before), compiler, before)
    made = tried.best
    return Row(
        name,
        share,
        before,
        tried.after,
        made.flops / max(made.given.flops, 1) if made else 0.0,
        made.stacks if made else 0,
        made.clones if made else 0,
        tried.tried,
        time.process_time() - start,
        "; ".join(tried.problems),
    )


def table(rows: Sequence[Row]) -> str:
    """The rows, and what they come to."""
    lines = [
        "| program | XLA | hlomem | share | fits | FLOPs | stacks | clones | tried | search |",
        "|---|---:|---:|---:|---|---:|---:|---:|---:|---:|",
        *(
            f"| {row.name} | {row.before:,} | {row.after:,} | {row.after / row.before:.3f} |"
            f" {'yes' if row.after <= row.share * row.before else 'no'} | {row.flops:+.1%} |"
            f" {row.stacks} | {row.clones} | {row.tried} | {row.seconds:.1f} s |"
            for row in rows
        ),
    ]
    fits = [row for row in rows if row.after <= row.share * row.before]
    mean = sum(row.flops for row in fits) / max(len(fits), 1)
    share = rows[0].share if rows else 0.0
    said = f"{len(fits)} of {len(rows)} fit {share:g} of XLA's temporaries"
    return "\n".join([*lines, "", f"{said}, for {mean:+.1%} operations in the mean of these."])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args(arguments)
    from tools.programs.large import LARGE_PROGRAMS  # noqa: PLC0415 - it needs JAX

    rows = known(given.json, Row)
    for name in given.only or LARGE_PROGRAMS:
        if name in {row.name for row in rows}:
            continue
        try:
            row = measure(name, given.target, given.share)
        except HlomemError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        print(row, file=sys.stderr, flush=True)
        if row.before >= MIN_BYTES:
            rows.append(row)
        if given.json:
            given.json.write_text(json.dumps([one._asdict() for one in rows], indent=1))
    print(table(rows))
    if given.write:
        put(given.write, f"fits, {given.target}", table(rows))
    return int(any(row.after > row.before for row in rows))


if __name__ == "__main__":
    sys.exit(main())
