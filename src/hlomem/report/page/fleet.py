"""The data of a fleet's page, which `hlomem.fleet.page` fills from a store.

The programs are columns, as there may be many thousands.
"""

from __future__ import annotations

from hlomem.dump.records import Record


class FleetPrograms(Record, frozen=True, kw_only=True):
    """The programs of a run, a list per field, what needs most first."""

    id: list[str]
    name: list[str]
    place: list[str]
    backend: list[str]
    needs: list[int]
    peak: list[int]
    """-1 where nobody knows."""
    padding: list[int]
    copies: list[int]
    donatable: list[int]
    has_page: list[bool]
    """For each, whether its own page lies beside this one."""


class FleetError(Record, frozen=True, kw_only=True):
    """Inputs that could not be read, of one kind."""

    kind: str
    count: int
    example: str


class FleetLine(Record, frozen=True, kw_only=True):
    """A source line."""

    line: str
    size: int
    """Bytes at the peaks of all programs together."""
    programs: int
    largest: str
    """The program in which it has most."""


class FleetSeries(Record, frozen=True, kw_only=True):
    """A program over the runs."""

    name: str
    place: str
    needs: list[int]
    """By run; -1 where the run does not have it."""


class FleetPage(Record, frozen=True, kw_only=True):
    """The page of a fleet."""

    run: str
    runs: list[str]
    """The last runs, the oldest first."""
    programs: FleetPrograms
    left_out: int
    """Programs that are too many for a page."""
    errors: tuple[FleetError, ...]
    lines: tuple[FleetLine, ...]
    series: tuple[FleetSeries, ...]
    """Those that changed most over the runs, or need most where none changed."""
    chips: dict[str, int]
    platforms: dict[str, str]
    """Of the chips."""
    chip: str
    """The one to begin with; empty for none."""
    capacity: int | None
    """Given instead of a chip."""
    pages: str
    """The folder of the programs' pages, from this one on."""
    command: str
    """The command that makes the page of a program, but for its id."""
