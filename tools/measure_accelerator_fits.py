"""Makes programs need less on a machine that is not here, or fit a share of what they need: tables.

    python -m tools.measure_accelerator_fits --target tpu-v5e:2x2 [--share 0.5 …] [--only NAME …]
                                             [--keep ROWS.jsonl] [--write docs/measurements.md]
    python -m tools.measure_accelerator_fits --target tpu-v5e:2x2 --programs FOLDER --optimize
                                             --whole --keep ROWS.jsonl

The programs are those of `tools.programs.large` with more than 1 GB of temporaries, or those of a
folder for one device (`tools.programs.folder`). For each: temporaries of XLA's plan, and of the
program that `hlomem.jax.optimize(fit=SHARE)` hands over, both as the target's compiler plans them;
whether that fits; the operations and the modelled time that were added; how many plans the compiler
made, their CPU time and that of the search. `--optimize` measures `optimize()` without a budget,
too, which is the share 0, and `--whole` the CPU time of a whole compile. `--keep` writes a row as
soon as it is there, and begins after those of the file. `--write` puts the table of a share into a
document, between the lines that mark its place. The exit code is 1 if a program needs more than
XLA's, or more with a number than without.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import HlomemError
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child
from hlomem.jax.compile.placeholder import planned_bytes, temporaries_of
from hlomem.jax.compile.scheduled_module import capture
from hlomem.jax.pass_.limits import Limits
from hlomem.jax.pass_.register import compiler_options
from hlomem.jax.pass_.transform import Transform
from hlomem.jax.target_kinds import parse_target
from hlomem.machines.budget import NO_BUDGET, MemoryBudget
from hlomem.opt.constants import RECOMPUTE
from hlomem.opt.goal import Rules
from tools.tables import head, put, row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.jax.target_kinds import Target

MIN_BYTES = 1_000_000_000
"""Of our own programs those with fewer bytes of temporaries are left out."""
MAX_INSTRUCTIONS = 50_000
_LARGE = "tools.programs.large:program"
_FOLDER = "tools.programs.folder:program"
_TIMEOUT = 1800.0


class Row(NamedTuple):
    """One program for one share."""

    name: str
    share: float
    """Of its temporaries; 0 without a budget."""
    before: int
    after: int
    ordered: int
    """Temporaries in the order alone."""
    flops: float
    """Operations added, as a share of those there were."""
    time: float
    """Modelled, as a share of what it was."""
    stacks: int
    clones: int
    moves: int
    """Values in the memory of the host."""
    plans: int
    """Modules that the compiler planned."""
    search: float
    """CPU seconds, children aside."""
    planning: float
    """CPU seconds of the children that planned."""
    compile: float
    """CPU seconds of a whole compile; 0 where it was not asked for."""
    says: str

    @property
    def ratio(self) -> float:
        return self.after / max(self.before, 1)

    @property
    def fits(self) -> bool:
        return self.after <= self.share * self.before


class Captured(NamedTuple):
    """A program as its compiler handed it over."""

    name: str
    target: Target
    proto: bytes
    before: int
    seconds: float


def measure(given: Captured, share: float) -> Row:
    """Hand a program to the pass, as a compile for the target does."""
    aim, plans = given.target, 0

    def plan(proto: bytes) -> int:
        nonlocal plans
        plans += 1
        return planned_bytes(aim.name, aim.family, proto)

    rules = Rules(recompute=RECOMPUTE, may_reorder_collectives=True)
    budget = MemoryBudget(share=share) if share else NO_BUDGET
    limits = Limits(0, MAX_INSTRUCTIONS, budget)
    options = compiler_options(aim.family, aim.machine.chip_name)
    started = _children()
    outcome = Transform(aim.family, options, rules, limits, plan)._transform(given.proto).outcome
    return Row(
        given.name,
        share,
        outcome.before,
        outcome.after,
        outcome.ordered,
        outcome.flops / max(outcome.program_flops, 1),
        outcome.time_ratio,
        outcome.stacks,
        outcome.clones,
        outcome.moves,
        plans,
        outcome.seconds,
        _children() - started,
        given.seconds,
        "; ".join(filter(None, (str(outcome), outcome.reason))),
    )


def _children() -> float:
    """CPU seconds of children that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _capture(name: str, options: argparse.Namespace) -> Captured:
    settings: dict[str, Any] = {"name": name}
    factory = _LARGE
    if options.programs is not None:
        factory = _FOLDER
        settings |= {"folder": str(options.programs), "backend": _backend(options.target)}
    job = Job(factory=factory, target=options.target, settings=settings)
    planned, proto = capture(job, _TIMEOUT, lambda _: None)
    whole = plan_in_child(job, timeout=_TIMEOUT, is_full=True) if options.whole else None
    seconds = 0.0 if whole is None else whole.cpu_seconds
    return Captured(name, planned.target, proto, temporaries_of(planned.dump), seconds)


def table(rows: Sequence[Row]) -> str:
    """The rows of one share, and what they come to."""
    share = rows[0].share if rows else 0.0
    names = ["program", "XLA", "hlomem", "ratio", "fits" if share else "order alone", "FLOPs"]
    names += ["modelled time", "stacks", "clones", "on the host", "plans", "search", "planning"]
    marks = ["---", *["---:"] * 3, "---" if share else "---:", *["---:"] * 8]
    has_compile = any(one.compile for one in rows)
    if has_compile:
        names, marks = [*names, "compile"], [*marks, "---:"]
    lines = [row(_cells(one, has_compile=has_compile)) for one in rows]
    return "\n".join([*head(names, marks), *lines, "", _total(rows, share)])


def _cells(one: Row, *, has_compile: bool) -> list[str]:
    third = ("yes" if one.fits else "no") if one.share else f"{one.ordered / one.before:.3f}"
    sizes = [one.name, f"{one.before:,}", f"{one.after:,}", f"{one.ratio:.3f}", third]
    price = [f"{one.flops:+.1%}", f"{one.time:.3f}×"]
    counts = [str(one.stacks), str(one.clones), str(one.moves), str(one.plans)]
    seconds = [one.search, one.planning, *([one.compile] if has_compile else [])]
    return [*sizes, *price, *counts, *(f"{second:.1f} s" for second in seconds)]


def _total(rows: Sequence[Row], share: float) -> str:
    mean = exp(sum(log(max(one.ratio, 1e-6)) for one in rows) / max(len(rows), 1))
    larger = sum(one.after > one.before for one in rows)
    if not share:
        smaller = sum(one.after < one.before for one in rows)
        said = f"temporaries {mean:.3f} of XLA's (geometric mean)"
        return f"{len(rows)} programs: {said}; smaller in {smaller}, larger in {larger}."
    fits = [one for one in rows if one.fits]
    flops = sum(one.flops for one in fits) / max(len(fits), 1)
    said = f"{len(fits)} of {len(rows)} fit {share:g} of XLA's temporaries"
    return f"{said}, for {flops:+.1%} operations in the mean of these; {mean:.3f} in the mean."


def _backend(target: str) -> str:
    """The name that a folder has for the compiler of a target."""
    family = parse_target(target).family
    return "gpu" if family == "cuda" else family


def _names(options: argparse.Namespace) -> list[str]:
    if options.only:
        return list(options.only)
    if options.programs is not None:
        from tools.programs.folder import read_folder  # noqa: PLC0415 - it needs JAX

        found = read_folder(options.programs, _backend(options.target))
        return [name for name, one in found.items() if not one.is_multi]
    from tools.programs.large import LARGE_PROGRAMS  # noqa: PLC0415 - it needs JAX

    return list(LARGE_PROGRAMS)


def _measure_all(options: argparse.Namespace, known: set[tuple[str, float]]) -> Iterator[Row]:
    shares = [*([0.0] if options.optimize else []), *options.share]
    for name in _names(options):
        wanted = [share for share in shares if (name, share) not in known]
        if not wanted:
            continue
        try:
            given = _capture(name, options)
            if options.programs is None and given.before < MIN_BYTES:
                continue
            for share in wanted:
                yield measure(given, share)
        except HlomemError as error:
            print(f"{name}: {error}", file=sys.stderr)


def _read_rows(file: Path | None) -> list[Row]:
    if file is None or not file.exists():
        return []
    return [Row(**json.loads(line)) for line in file.read_text().splitlines()]


def _is_right(rows: Sequence[Row]) -> bool:
    """Whether nothing is larger than XLA's, or where it misses than without a number."""
    alone = {one.name: one.after for one in rows if not one.share}
    return all(
        one.after <= min(one.before, alone.get(one.name, one.before))
        for one in rows
        if not (one.share and one.fits)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure programs and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--programs", type=Path, metavar="FOLDER")
    parser.add_argument("--share", type=float, nargs="*", default=[0.5])
    parser.add_argument("--optimize", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--keep", type=Path, metavar="FILE")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args(arguments)
    rows = _read_rows(options.keep)
    for one in _measure_all(options, {(one.name, one.share) for one in rows}):
        rows.append(one)
        print(one, file=sys.stderr, flush=True)
        if options.keep is not None:
            with options.keep.open("a") as file:
                file.write(json.dumps(one._asdict()) + "\n")
    for share in dict.fromkeys(one.share for one in rows):
        told = [one for one in rows if one.share == share]
        print(table(told))
        if options.write and share:
            put(options.write, f"fits, {options.target}", table(told))
    return 0 if _is_right(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
