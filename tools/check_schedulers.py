"""Whether the schedulers of hlomem choose XLA's own order: the corpus' programs, schedules removed.

    python -m tools.check_schedulers [--corpus FOLDER] [--json FILE]

Of every entry for CPU whose text carries a schedule that is removed, and the order chosen anew is
compared with the one XLA had. A line per release, and which programs differ by what: the first
instruction that XLA runs elsewhere.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.hlo.schedule import running_computations
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt.orders.xla_schedulers import choose_schedule
from tools.corpus import check_all, entries_in, parse_arguments, write_counts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Result(NamedTuple):
    """One program."""

    version: str
    name: str
    difference: str
    """Empty where the orders are equal."""


def check(home: Path) -> Result | None:
    """Choose a program's order anew; None where XLA's is not known."""
    meta = json.loads((home / "meta.json").read_text())
    if meta["backend"] != "cpu" or not meta["scheduled"]:
        return None
    version = meta["versions"]["jaxlib"]
    text = (home / "module.hlo").read_text()
    module = hlo.parse(re.sub(r",? is_scheduled=true", "", text, count=1))
    release = Release("jaxlib", tuple(map(int, version.split("."))))
    chosen = choose_schedule(module, options_for(find_machine("cpu"), release))
    assert chosen is not None
    given = hlo.parse(text)
    for computation in running_computations(module):
        theirs = [part.name for part in given.computation_by_name[computation.name].instructions]
        ours = [part.name for part in chosen.schedule.sequence(computation)]
        for name, other in zip(theirs, ours, strict=True):
            if name != other:
                where = f"{computation.name}, {theirs.index(name)} of {len(theirs)}"
                return Result(version, home.name, f"{name}, not {other} ({where})")
    return Result(version, home.name, "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per release."""
    options = parse_arguments(__doc__, arguments)
    homes = [home for home in entries_in(options.corpus) if home.parent.name.startswith("cpu")]
    results = [result for result in check_all(check, homes) if result is not None]
    versions = sorted(
        {result.version for result in results}, key=lambda text: [*map(int, text.split("."))]
    )
    print("| jaxlib | programs | XLA's order |")
    print("|---|---:|---:|")
    for version in versions:
        members = [result for result in results if result.version == version]
        equal = sum(not result.difference for result in members)
        print(f"| {version} | {len(members)} | {equal} |")
    for result in results:
        if result.difference:
            print(f"{result.version} {result.name}: {result.difference}")
    same = sum(not result.difference for result in results)
    write_counts(options.json, {"programs": len(results), "equal": same})
    return 0


if __name__ == "__main__":
    sys.exit(main())
