"""Bytes by owner: the rows of a timeline's moment, a forecast's peak, an instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

FROM_HOST, WASTE = "array from the host", "lost in chunks"


class OwnerRow(Record, frozen=True, kw_only=True):
    """Bytes of one owner."""

    size: int
    count: int = 1
    owner: str
    name: str = ""
    """The program, the tuned instruction, or the shape of an array."""
    line: str = ""
    allocation: int | None = None
    """Of the program's plan."""
    since: float | None = None
    """Seconds since the trace began; None where it is older, or nothing was traced."""


def merge_rows(rows: Iterable[OwnerRow]) -> tuple[OwnerRow, ...]:
    """One row for all of the same owner, name, allocation and line; the largest first."""
    groups: dict[tuple[str, str, int | None, str], list[OwnerRow]] = {}
    for row in rows:
        groups.setdefault((row.owner, row.name, row.allocation, row.line), []).append(row)
    merged = [
        replace(
            members[0],
            size=sum(row.size for row in members),
            count=sum(row.count for row in members),
            since=min((row.since for row in members if row.since is not None), default=None),
        )
        for members in groups.values()
    ]
    return tuple(sorted(merged, key=lambda row: (-row.size, row.owner, row.name, row.line)))
