"""Compares what a Compiled holds with the dump of the same compile, value by value.

    python -m tools.check_compiled TARGET [NAME...]

Each program of `tools.programs.small` is compiled for TARGET once, with a dump. The plan read from
the executable must have every value of the dump: its number, name, allocation, offset, size and
memory space. Prints counts; the exit code is 1 when any value differs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hlomem.jax.compile.programs import lower, module_name, write_dump
from hlomem.jax.function_memory import dump_of, read_dump
from hlomem.jax.target_kinds import parse_target
from tools.programs.small import PROGRAMS

if TYPE_CHECKING:
    from hlomem.dump.dump import Dump
    from hlomem.dump.records import AssignedValue
    from hlomem.jax.target_kinds import Target


def places(dump: Dump) -> set[tuple[Any, ...]]:
    """Every value of a dump in its place."""
    assert dump.assignment is not None
    return {
        (value.id, value.name, value.index, allocation.index, allocation.color, *place(value))
        for allocation in dump.assignment.allocations
        for value in allocation.values
    }


def place(value: AssignedValue) -> tuple[int, int]:
    """Offset and size."""
    return value.offset, value.size


def compare(name: str, target: Target) -> tuple[int, int]:
    """How many values the dump of a program has, and how many the executable has as well."""
    program = PROGRAMS[name]
    options = {"donate_argnums": program.donated}
    lowered = lower(program.function, program.arguments, {}, target, options)
    with TemporaryDirectory() as folder:
        compiled = write_dump(lowered, Path(folder)).compiled
        dumped = places(read_dump(Path(folder), module_name(lowered)))
    found = dump_of(compiled)
    return len(dumped), len(dumped & places(found)) if found is not None else 0


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=parse_target)
    parser.add_argument("name", nargs="*")
    options = parser.parse_args()
    totals = [0, 0]
    for name in options.name or PROGRAMS:
        values, same = compare(name, options.target)
        print(f"{name:32} {same} of {values}", flush=True)
        totals = [totals[0] + values, totals[1] + same]
    print(f"{options.target.name}: {totals[1]} of {totals[0]} values as XLA's dump has them")
    return int(totals[0] != totals[1])


if __name__ == "__main__":
    sys.exit(main())
