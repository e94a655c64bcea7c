"""The pairs: a script, its options, and the one thing that is changed.

diff.txt is for `hlomem diff`, which has to name the cause; its scripts are in
tools/programs/scripts, those of another table beside it. A row makes a pair on each of its
platforms, named after both. The third column is the kind of change; versions are those of jaxlib
before and after, the newest where there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

NEWEST = "0.12.0.1"


class Row(NamedTuple):
    """One change of one program, as a line of the table has it."""

    name: str
    platforms: str
    cause: str
    program: str
    options: str
    before: str
    after: str
    versions: str
    says: str


class Side(NamedTuple):
    """What is compiled on one side of a pair."""

    program: str
    options: str
    platform: str
    version: str


class Pair(NamedTuple):
    """A row on one platform."""

    row: Row
    before: Side
    after: Side


def rows(table: Path) -> list[Row]:
    """The lines of a table, below its head."""
    lines = table.read_text().splitlines()[1:]
    return [Row(*(cell.strip() for cell in line.split("|"))) for line in lines if line.strip()]


def pairs(table: Path) -> dict[str, Pair]:
    """Each pair of a table by its name."""
    found = {}
    for row in rows(table):
        old, new = row.versions.split() or (NEWEST, NEWEST)
        for platform in row.platforms.split():
            before = Side(row.program, f"{row.options} {row.before}".strip(), platform, old)
            after = Side(row.program, f"{row.options} {row.after}".strip(), platform, new)
            found[f"{row.name}_{platform}"] = Pair(row, before, after)
    return found
