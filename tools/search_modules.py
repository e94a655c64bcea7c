"""Runs the pass over modules that a compiler handed to it, without the compiler: bytes and seconds.

    python -m tools.search_modules FOLDER [--machine cpu|cuda-h200] [--share 0.5 …] [--only NAME …]
                                   [--min-bytes 65536] [--keep ROWS.jsonl]

FOLDER has `NAME.pb.gz`, the modules, and may have `rows.jsonl` with a line for each: `name`, and
`cpu`, the CPU seconds of the compile that handed it over (`python -m tools.search_modules --record
PROGRAMS_FOLDER FOLDER` writes both by XLA:CPU). A share of 0 is `optimize()` without a budget. For
each: the bytes that are left, the floor, whether it fits, operations and modelled time added, the
seconds of the search as a part of the compile's, and what the pass says where it misses.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlomem.jax.pass_.limits import Limits
from hlomem.jax.pass_.transform import Transform
from hlomem.machines.budget import NO_BUDGET, MemoryBudget
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt.candidate import start_text
from hlomem.opt.constants import RECOMPUTE
from hlomem.opt.goal import Rules
from hlomem.opt.orders.planned_orders import other_bytes
from hlomem.opt.remat.floor import find_floor
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Row = dict[str, Any]
MACHINES = {"cpu": ("cpu", ""), "cuda-h200": ("gpu", "h200"), "cuda-h100": ("gpu", "h100")}
RELEASES = {
    name: Release("jaxlib", (0, 12, 0) if name == "cpu" else (0, 11, 2)) for name in MACHINES
}


def measure(name: str, proto: bytes, machine: str, share: float, least: int) -> Row | None:
    """One module; None where it is small."""
    options = options_for(find_machine(*MACHINES[machine]), RELEASES[machine])
    rules = Rules(recompute=RECOMPUTE, exact=not share)
    budget = MemoryBudget(share=share) if share else NO_BUDGET
    search = Transform(machine.partition("-")[0], options, rules, Limits(least, 50_000, budget))
    answer = search._find_or_make(proto)
    outcome = answer.outcome
    if outcome.kind == "skipped":
        return None
    stages = start_text(read_module(proto), options)
    room = int(share * outcome.before)
    floor = find_floor(stages).size
    return {
        "name": name,
        "share": share,
        "before": outcome.before,
        "after": outcome.after,
        "others": other_bytes(stages),
        "floor": floor,
        "fits": bool(share) and outcome.after <= room,
        "cannot": bool(share) and outcome.after > room and floor > room,
        "flops": outcome.flops / max(outcome.program_flops, 1),
        "time": outcome.time_ratio,
        "search": outcome.seconds,
        "reason": outcome.reason,
        "says": str(outcome),
        "slower": list(outcome.slower),
    }


def line(row: Row, compiled: float) -> str:
    """A row as people read it."""
    fits = "" if not row["share"] else "yes" if row["fits"] else "cannot" if row["cannot"] else "NO"
    part = f"{row['search'] / compiled:.2f}" if compiled else "-"
    return (
        f"{row['name']:34} {row['share']:4} {row['before'] / 1e6:10.2f} MB"
        f" {row['after'] / row['before']:.3f} floor {row['floor'] / row['before']:.3f} {fits:6}"
        f" FLOPs {row['flops']:+.1%} time {row['time']:.3f} search {row['search']:.2f} s, {part}"
        f" of the compile  {row['reason'][:120]}"
    )


def summary(rows: Sequence[Row], share: float, compiles: dict[str, float]) -> str:
    """What they come to."""
    known = [row["search"] / compiles[row["name"]] for row in rows if row["name"] in compiles]
    long = sum(ratio > 1 for ratio in known)
    words = f"search longer than the compile in {long} of {len(known)}"
    if not share:
        mean = statistics.geometric_mean([max(row["after"], 1) / row["before"] for row in rows])
        return f"optimize(): {mean:.3f}, geometric mean of {len(rows)}; {words}"
    fits = [row for row in rows if row["fits"]]
    can = len(rows) - sum(row["cannot"] for row in rows)
    flops = statistics.fmean([row["flops"] for row in fits]) if fits else 0.0
    times = statistics.fmean([row["time"] for row in fits]) if fits else 0.0
    return (
        f"{share:g}: {len(fits)} of {can} that can ({len(fits) / max(can, 1):.0%}), {len(rows)} in"
        f" all, for {flops:+.1%} FLOPs, modelled time {times:.3f}; {words}"
    )


def record(folder: Path, out: Path, least: int) -> Iterator[Row]:
    """Compile the programs of a folder by XLA:CPU and keep the modules that it hands over."""
    jax: Any = import_module("jax")
    hook: Any = import_module("hlomem.jax.pass_.hook")
    extension = import_module("jax.extend.xla")
    read_folder = import_module("tools.programs.folder").read_folder
    programs = read_folder(folder)  # before JAX begins to work: it asks for four devices
    out.mkdir(parents=True, exist_ok=True)
    seen: list[bytes] = []
    hook.put_pass(extension, lambda module: seen.append(bytes(module)), "hlomem-seen", "cpu")
    for name, program in programs.items():
        if (out / f"{name}.pb.gz").exists():
            continue
        seen.clear()
        try:
            function, shapes = program.make()
            lowered = function.lower(*shapes)
            start = time.process_time()
            compiled = lowered.compile()
            spent = time.process_time() - start
            size = compiled.memory_analysis().temp_size_in_bytes
        except Exception as error:  # noqa: BLE001 - told, and the next is compiled
            yield {"name": name, "error": f"{type(error).__name__}: {error}"[:200]}
            continue
        if size >= least and seen:
            (out / f"{name}.pb.gz").write_bytes(gzip.compress(max(seen, key=len)))
            yield {"name": name, "cpu": spent, "temp": size}
        jax.clear_caches()


def main(arguments: Sequence[str]) -> int:
    """Search all modules of a folder, or record them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--machine", choices=sorted(MACHINES), default="cpu")
    parser.add_argument("--share", type=float, nargs="*", default=[0.0, 0.5, 0.25])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--min-bytes", type=int, default=1 << 16)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args(arguments)
    if given.record:
        for row in record(given.folder, given.out, given.min_bytes):
            print(json.dumps(row), flush=True)
            with (given.out / "rows.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
        return 0
    notes = given.folder / "rows.jsonl"
    told = [json.loads(one) for one in notes.read_text().splitlines()] if notes.exists() else []
    compiles = {row["name"]: row["cpu"] for row in told if "cpu" in row}
    for share in given.share:
        rows: list[Row] = []
        for file in sorted(given.folder.glob("*.pb.gz")):
            name = file.name.removesuffix(".pb.gz")
            if given.only and name not in given.only:
                continue
            proto = gzip.decompress(file.read_bytes())
            found = measure(name, proto, given.machine, share, given.min_bytes) if proto else None
            if found is not None:
                rows.append(found)
                print(line(found, compiles.get(name, 0)), flush=True)
                if given.keep is not None:
                    with given.keep.open("a") as kept:
                        kept.write(json.dumps(found) + "\n")
        if rows:
            print(summary(rows, share, compiles), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
