"""Damaged inputs by the thousand, each through the commands, each under a limit.

    python -m tools.fuzz --count 10000 --seed 1 [--target hlo|dump|proto|…|hostile] [--only N]

A mutant is made from target, seed and number alone, so `--only N` makes it again, runs it without
limits and leaves its files in `--keep`, as it does for every finding. Prints what became of all.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.entry_points import End, Outcome
from tests.fuzz.limits import LimitedProcess, Limits, run_limited, run_trial
from tests.fuzz.trials import TARGETS, hostile_trials, make_trial

if TYPE_CHECKING:
    from collections.abc import Iterator

_BATCH = 100
_MANY = 100_000
_HOSTILE_LIMITS = Limits(cpu_seconds=20, memory_bytes=1 << 30)  # they are large themselves


def run_mutants(target: str, seed: int, count: int, jobs: int) -> Iterator[tuple[int, Outcome]]:
    """How every command on every mutant ended, as they end."""
    pending = [range(start, min(start + _BATCH, count)) for start in range(0, count, _BATCH)][::-1]
    running: dict[object, tuple[LimitedProcess, range]] = {}
    while pending or running:
        while pending and len(running) < jobs:
            numbers = pending.pop()
            process = LimitedProcess(make_trial(target, seed, number) for number in numbers)
            running[process.results] = process, numbers
        for ready in wait([process.results for process, _ in running.values()]):
            process, numbers = running[ready]
            try:
                outcome = process.receive()
            except EOFError:
                del running[ready]
                if numbers:
                    yield numbers[0], process.death()
                    pending.append(numbers[1:])
                continue
            if outcome is not None:
                yield numbers[0], outcome
            else:
                running[ready] = process, numbers[1:]


def run_hostile() -> Iterator[tuple[str, Outcome]]:
    """How every command on every hostile text ended."""
    for name, make in hostile_trials(_MANY).items():
        for outcome in run_limited(make(), _HOSTILE_LIMITS):
            yield name, outcome


def _keep(folder: Path, target: str, seed: int, number: int) -> None:
    place = folder / f"{target}-{seed}-{number}"
    place.mkdir(parents=True, exist_ok=True)
    for name, data in make_trial(target, seed, number).files.items():
        (place / name).write_bytes(data)


def _report(target: str, ends: Counter[tuple[str, End]]) -> None:
    for command in sorted({command for command, _ in ends}):
        row = ", ".join(f"{ends[command, end]} {end.value}" for end in End if ends[command, end])
        print(f"{target}: {command:<7} {row}")
    refused = sum(count for (_, end), count in ends.items() if end is End.REFUSED)
    unplaced = sum(count for (_, end), count in ends.items() if end is End.UNPLACED)
    if refused:
        share = 100 * refused / (refused + unplaced)
        print(
            f"{target}: {share:.2f} % of {refused + unplaced} refusals have file, line and reason"
        )


def _run(target: str, seed: int, count: int, jobs: int, keep: Path) -> int:
    """Run a target, print what became of it; how many findings there are."""
    ends: Counter[tuple[str, End]] = Counter()
    runs = run_hostile() if target == "hostile" else run_mutants(target, seed, count, jobs)
    for number, outcome in runs:
        ends[outcome.command, outcome.end] += 1
        if outcome.end in {End.BUG, End.UNPLACED}:
            said = outcome.said.strip().replace("\n", "\n    ")
            print(f"{target} {number}: {outcome.command}: {outcome.end.value}: {said}", flush=True)
            if isinstance(number, int):
                _keep(keep, target, seed, number)
    _report(target, ends)
    return sum(count for (_, end), count in ends.items() if end is End.BUG)


def main() -> int:
    """Run mutants; 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    targets = [*TARGETS, "hostile"]
    parser.add_argument("--target", choices=targets, action="append")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, metavar="N")
    parser.add_argument("--keep", type=Path, default=Path(".fuzz"), metavar="DIR")
    options = parser.parse_args()
    findings = 0
    for target in options.target or targets:
        if options.only is None:
            findings += _run(target, options.seed, options.count, options.jobs, options.keep)
            continue
        _keep(options.keep, target, options.seed, options.only)
        for outcome in run_trial(make_trial(target, options.seed, options.only)):
            print(outcome.command, outcome.end.value, outcome.said)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
