"""A report's suggestion; apart from the registry, which `--help` imports."""

from __future__ import annotations

from hlomem.dump.records import Record


class Hint(Record, frozen=True, kw_only=True):
    size: int
    """An upper bound of the bytes saved."""
    what: str
    command: str
