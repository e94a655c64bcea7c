"""The units a store already has, whose rows a scan can reuse instead of reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.fleet.tables import Tables
    from hlomem.fleet.units import Unit

_COLUMNS = (
    "run, key, names, bytes, segment, unit, source, stamp, archive, is_archive, modules, errors"
)


class Held(Struct, frozen=True):
    """A unit whose rows are in the store, and the unit that reuses them."""

    is_of_this_run: bool
    new_unit: str
    segment: str
    unit: str
    source: str
    stamp: str
    archive: str | None
    is_archive: bool
    modules: int
    errors: int
    place: str | None = None
    """None to keep the stored one."""

    @property
    def line(self) -> dict[str, Any]:
        """The row for the writer of segments."""
        return {
            "old_segment": self.segment,
            "old_unit": self.unit,
            "unit": self.new_unit,
            "source": self.source,
            "place": self.place,
            "archive": self.archive,
            "stamp": self.stamp,
        }


class Known:
    """The units of a store that were read with the same recipe."""

    def __init__(self, tables: Tables, run: str, recipe: str, *, retry: bool) -> None:
        self._run = run
        self._by_stamp: dict[tuple[str, str], Held] = {}
        self._by_key: dict[str, Held] = {}
        self._keys: dict[tuple[str, int], set[str]] = {}
        self._members: dict[tuple[str, str], dict[str, Held]] = {}
        query = f"SELECT {_COLUMNS} FROM units WHERE recipe = ? ORDER BY committed"
        for row in tables.connection.execute(query, [recipe]).fetchall():
            if not (retry and row[-1]):
                self._add(*row)

    def _add(self, run: str, key: str | None, names: str, size: int, *row: Any) -> None:
        held = Held(run == self._run, row[1], *row)
        unit, stamp, archive = held.unit, held.stamp, held.archive
        before = self._by_stamp.get((unit, stamp))
        if before is None or not before.is_of_this_run:
            self._by_stamp[unit, stamp] = held
        if archive is not None:
            members = self._members.setdefault((archive, stamp), {})
            if unit not in members or not members[unit].is_of_this_run:
                members[unit] = held
        if key is not None:
            self._by_key[key] = held
            self._keys.setdefault((names, size), set()).add(key)

    def is_done(self, unit: Unit) -> bool:
        """Whether this run has the unit unchanged."""
        held = self.held(unit)
        return held is not None and held.is_of_this_run

    def held(self, unit: Unit) -> Held | None:
        return self._by_stamp.get((unit.id, unit.stamp))

    def keys(self, unit: Unit) -> tuple[str, ...]:
        """The content keys that a unit may have, by its files' names and sizes."""
        return tuple(sorted(self._keys.get((unit.names, unit.size), ())))

    def of_key(self, key: str) -> Held:
        return self._by_key[key]

    def has_archive(self, archive: Unit) -> bool:
        """Whether a whole archive is in the store, in any run."""
        held = self.held(archive)
        return held is not None and held.is_archive

    def members(self, archive: Unit) -> Iterator[Held]:
        """The units of a stored archive, itself last."""
        yield from self._members.get((archive.source, archive.files[0].stamp), {}).values()
        held = self._by_stamp[archive.id, archive.stamp]
        if not held.is_of_this_run:
            yield replace(held, archive=None)
