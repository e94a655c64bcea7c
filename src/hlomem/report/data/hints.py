"""A report's suggestion of what to save."""

from __future__ import annotations

from hlomem.dump.records import Record


class Hint(Record, frozen=True, kw_only=True):
    """Something that could be saved."""

    size: int
    """Bytes, at most."""
    what: str
    command: str
    """The command that shows it in detail."""
