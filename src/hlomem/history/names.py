"""The parts of names: `service/name_uniquer.cc` counts for each base name; passes add words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction

CLONE = ".clone"
PARTITIONED = "_spmd"
"""Ends the names of what the partitioner made of the program's own computations."""
TOP_K_COMPARATOR = "compare-greater-than"

WIDENED = "wide."
"""Begins the names of loops that code was moved out of, once for each time."""
SUNK = ".sunk"
"""Ends the names of loops' bodies that constants were sunk into."""

_MAX_DIGITS = 18  # of a number that fits 64 bits


def split_number(name: str) -> tuple[str, int]:
    """A name's base and number; -1 where it has none."""
    base, _, number = name.rpartition(".")
    is_number = number.isdecimal() and len(number) <= _MAX_DIGITS
    return (base, int(number)) if base and is_number else (name, -1)


def number_of(named: HloComputation | HloInstruction) -> int:
    """The number in a name; -1 where it has none."""
    return split_number(named.name)[1]


def flow_name(name: str) -> str:
    """The name of a computation before code was moved out of it and constants into it."""
    while name.startswith(WIDENED):
        name = name.removeprefix(WIDENED)
    return name.removesuffix(SUNK)
