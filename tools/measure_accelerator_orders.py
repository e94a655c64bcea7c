"""Compiles large programs for a TPU or GPU that is not here, with and without hlomem's pass.

    python -m tools.measure_accelerator_orders --target tpu-v5e:2x2 [--only NAME …]
                                               [--effort default] [--json FILE]
                                               [--write docs/measurements.md]

For every program of `tools.programs.large`: temporaries in XLA's own order and with the pass, both
as the target's compiler plans them; what the order alone comes to by the pass's forecast, and what
is computed again; whether the pass forecast the size; the time of a run by the model of
`hlomem.opt.orders.cost`; CPU time of the search, children aside. Each compile is a child
process, stopped when its plan is there. `--json` keeps what was measured: programs in the file are
not measured again. `--write` puts the table into a document, between the lines that mark the place
of this target's. The exit code is 1 if an order needs more.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hlomem.base.errors import HlomemError
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child
from hlomem.jax.compile.placeholder import temporaries_of
from tools.tables import known, put

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_BYTES = 100_000_000
"""Programs with fewer bytes of temporaries are not counted."""
_FACTORY = "tools.programs.large:program"


class Row(NamedTuple):
    """One program."""

    name: str
    before: int
    after: int
    forecast: int | None
    """What the pass said it would be; None where it did not say."""
    time_ratio: float
    seconds: float
    kind: str
    reason: str
    ordered: int = 0
    """Temporaries in the order alone, as forecast."""
    clones: int = 0
    stacks: int = 0
    flops: float = 0.0
    """Operations that are added, as a share."""

    @property
    def order_ratio(self) -> float:
        return self.ordered / self.before if self.before else 1.0

    @property
    def ratio(self) -> float:
        return self.after / self.before if self.before else 1.0


def measure(name: str, target: str, effort: str) -> Row:
    """Compile a program both ways."""
    plain = _plan(target, {"name": name})
    with TemporaryDirectory(prefix="hlomem-") as folder:
        log = Path(folder) / "log"
        settings = {"name": name, "target": target, "effort": effort, "log": str(log)}
        better = _plan(target, settings)
        outcomes = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
    outcome: dict[str, Any] = max(outcomes, key=lambda found: found["before"], default={})
    kind = outcome.get("kind", "not called")
    return Row(
        name,
        plain,
        better,
        outcome["after"] if kind in ("improved", "kept") else None,
        outcome.get("time_ratio", 1.0),
        outcome.get("seconds", 0.0),
        kind,
        outcome.get("reason", ""),
        outcome.get("ordered") or plain,
        outcome.get("clones", 0),
        outcome.get("stacks", 0),
        outcome.get("flops", 0) / max(outcome.get("program_flops", 0), 1),
    )


def _plan(target: str, settings: dict[str, Any]) -> int:
    planned = plan_in_child(Job(factory=_FACTORY, target=target, settings=settings))
    return temporaries_of(planned.dump)


_HEAD = (
    "| program | XLA | hlomem | ratio | order alone | again | forecast | modelled time | search |\n"
    "|---|---:|---:|---:|---:|---|---|---:|---:|"
)


def table(rows: Sequence[Row]) -> str:
    """The rows, and what they come to."""
    lines = [
        _HEAD,
        *(
            f"| {row.name} | {row.before:,} | {row.after:,} | {row.ratio:.3f} |"
            f" {row.order_ratio:.3f} | {_again(row)} | {_forecast(row)} |"
            f" {row.time_ratio:.3f}× | {row.seconds:.1f} s |"
            for row in rows
        ),
    ]
    return "\n".join([*lines, "", _total(rows)])


def _again(row: Row) -> str:
    parts = [f"{row.clones}"] if row.clones else []
    parts += [f"{row.stacks} stacks"] if row.stacks else []
    return f"{', '.join(parts)}: {row.flops:+.1%}" if parts else ""


def _forecast(row: Row) -> str:
    if row.forecast is None:
        return "none"
    if row.forecast == row.after:
        return "exact"
    return f"{(row.forecast - row.after) / row.after:+.2%}"


def _total(rows: Sequence[Row]) -> str:
    counted = [row for row in rows if row.before >= MIN_BYTES]
    mean = _mean([row.ratio for row in counted])
    alone = _mean([row.order_ratio for row in counted])
    smaller = sum(row.after < row.before for row in counted)
    larger = sum(row.after > row.before for row in counted)
    exact = sum(row.forecast == row.after for row in counted)
    return (
        f"{len(counted)} programs with more than 100 MB: temporaries {mean:.3f} of XLA's (geometric"
        f" mean), {alone:.3f} by the order alone; smaller in {smaller}, larger in {larger};"
        f" forecast exact in {exact}."
    )


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / max(len(values), 1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--effort", default="default")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args(arguments)
    rows = known(given.json, Row)
    from tools.programs.large import LARGE_PROGRAMS  # noqa: PLC0415 - it needs JAX

    for name in given.only or LARGE_PROGRAMS:
        if name in {row.name for row in rows}:
            continue
        try:
            rows.append(measure(name, given.target, given.effort))
        except HlomemError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        print(rows[-1], file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps([row._asdict() for row in rows], indent=1))
    print(table(rows))
    if given.write:
        put(given.write, f"orders, {given.target}", table(rows))
    return int(any(row.after > row.before for row in rows))


if __name__ == "__main__":
    sys.exit(main())
