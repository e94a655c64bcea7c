#!/usr/bin/env python3
"""Compare the size of every value in XLA's dumps with the size hlomem gives its shape.

    python tools/check_sizes.py [--corpus ../shared] [--json FILE]

Reads every `buffer-assignment.txt` (and every other `.txt` that begins like one) below the folder.
The machine comes from `meta.json` beside the dump, else from the name of the folder (`...cpu...`,
`...tpu-v5e...`), else it is the one under which most sizes agree, marked `?`. Prints a table: one
row per machine and rule, then every value that no rule explains. Exit code 1 if there is one, or if
a shape does not print back as it was.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.machines.registry import MACHINES, find_machine
from tools.corpus import check_all, parse_arguments, write_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.shape import Shape
    from hlomem.machines.machine import Machine

_VALUE_PREFIX = re.compile(r"^ +value: ", re.MULTILINE)
_VALUE = re.compile(
    r"^ +value: <\d+ .*?@(?P<color>\d+)> \(size=(?P<size>\d+),offset=(?P<offset>\d+)\): "
    r"(?P<shape>.*)$",
    re.MULTILINE,
)
_TPU_FOLDER = re.compile(r"tpu-(v4|v5e|v5p|v6e|tpu7x)")


class Value(NamedTuple):
    """What a value line says about sizes."""

    color: int
    size: int
    shape: Shape
    text: str


class Sizes(NamedTuple):
    """What the value lines of one dump, or of several, come to."""

    total: Counter[tuple[str, str]]  # by group and rule
    equal: Counter[tuple[str, str]]
    exceptions: list[str]


def check_dump(path: Path) -> Sizes:
    """Compare the values of one file; nothing where it is not a dump."""
    sizes = Sizes(Counter(), Counter(), [])
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    if not text.startswith("BufferAssignment:"):
        return sizes
    values = read_values(text, path)
    machine, group = machine_of(path, values)
    for value in values:
        row = (group, rule_of(machine, value.shape))
        sizes.total[row] += 1
        expected = machine.size_of(value.shape)
        if expected == value.size and value.color == value.shape.memory_space:
            sizes.equal[row] += 1
        else:
            sizes.exceptions.append(f"{path}: expected {expected}:{value.text}")
        if f"): {value.shape.text}" not in value.text:
            sizes.exceptions.append(f"{path}: prints as {value.shape.text}:{value.text}")
    return sizes


def read_values(text: str, path: Path) -> list[Value]:
    """All value lines; one that cannot be read ends the program."""
    values = [
        Value(int(match["color"]), int(match["size"]), parse_shape_text(match["shape"]), match[0])
        for match in _VALUE.finditer(text)
    ]
    if len(values) != len(_VALUE_PREFIX.findall(text)):
        sys.exit(f"{path}: a value line could not be read")
    return values


def machine_of(path: Path, values: list[Value]) -> tuple[Machine, str]:
    """The machine of a dump and the name of the row it is counted in."""
    meta = path.parent / "meta.json"
    if meta.exists():
        facts = json.loads(meta.read_text())
        versions = facts["versions"]
        machine = find_machine(facts["backend"], facts.get("chip") or "")
        return machine, f"{machine.name} {versions.get('libtpu') or versions['jax']}"
    chip = _TPU_FOLDER.search(path.parent.name)
    if chip:
        return find_machine("tpu", chip[1]), f"tpu-{chip[1]}"
    if "cpu" in path.parent.name:
        return find_machine("cpu"), "cpu"
    best = max(MACHINES.values(), key=lambda machine: count_equal(machine, values))
    return best, f"{best.name}?"


def count_equal(machine: Machine, values: list[Value]) -> int:
    """How many values have the size a machine gives them."""
    return sum(machine.size_of(value.shape) == value.size for value in values)


def rule_of(machine: Machine, shape: Shape) -> str:
    """The rule that decides the size of a shape."""
    if shape.is_tuple:
        return f"tuple table: {machine.pointer_size} x elements, up to {machine.tuple_granule}"
    if not shape.is_array:
        return shape.element_type.text
    if not machine.pads_tiles:
        return "packed bits" if shape.layout and shape.layout.element_size_in_bits else "elements"
    if shape.layout is not None and shape.layout.tiles:
        return "outermost tile"
    if shape.memory_space in machine.packed_spaces:
        return "untiled, elements alone"
    return f"untiled, up to {machine.untiled_granule} elements"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if something is left unexplained, or if there is nothing to compare."""
    options = parse_arguments(__doc__, arguments)
    results = check_all(check_dump, sorted(options.corpus.rglob("*.txt")))
    total = sum((sizes.total for sizes in results), Counter[tuple[str, str]]())
    equal = sum((sizes.equal for sizes in results), Counter[tuple[str, str]]())
    exceptions = [line for sizes in results for line in sizes.exceptions]
    write_table(total, equal)
    sys.stdout.writelines(f"{line}\n" for line in exceptions)
    rows = [[*row, total[row], equal[row]] for row in sorted(total)]
    counts = {"values": total.total(), "equal": equal.total(), "rows": rows}
    write_counts(options.json, {**counts, "exceptions": len(exceptions)})
    return 1 if exceptions or not total else 0


def write_table(total: Counter[tuple[str, str]], equal: Counter[tuple[str, str]]) -> None:
    """One row per group and rule, and the sum."""
    rows = [(*row, total[row], equal[row]) for row in sorted(total)]
    rows.append(("all", "", sum(total.values()), sum(equal.values())))
    sys.stdout.write(f"{'machine':<22}{'rule':<44}{'values':>8}{'equal':>8}\n")
    for group, rule, count, same in rows:
        sys.stdout.write(f"{group:<22}{rule:<44}{count:>8}{same:>8}\n")


if __name__ == "__main__":
    sys.exit(main())
