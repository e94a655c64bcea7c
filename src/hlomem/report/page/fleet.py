"""The data of a store's page, with programs as columns; filled by `hlomem.fleet.page`."""

from __future__ import annotations

from hlomem.dump.records import Record


class FleetPrograms(Record, frozen=True, kw_only=True):
    """The programs of a run, one list per field, largest first."""

    id: list[str]
    name: list[str]
    place: list[str]
    backend: list[str]
    needs: list[int]
    peak: list[int]
    """-1 if unknown."""
    padding: list[int]
    copies: list[int]
    donatable: list[int]
    has_page: list[bool]


class FleetError(Record, frozen=True, kw_only=True):
    kind: str
    count: int
    example: str


class FleetLine(Record, frozen=True, kw_only=True):
    line: str
    size: int
    """Bytes at the peaks of all programs."""
    programs: int
    largest: str
    """The program with most of them."""


class FleetSeries(Record, frozen=True, kw_only=True):
    name: str
    place: str
    needs: list[int]
    """By run; -1 if it is not in the run."""


class FleetPage(Record, frozen=True, kw_only=True):
    run: str
    runs: list[str]
    """The last runs, oldest first."""
    programs: FleetPrograms
    left_out: int
    """The number of programs beyond the limit of the page."""
    errors: tuple[FleetError, ...]
    lines: tuple[FleetLine, ...]
    series: tuple[FleetSeries, ...]
    """The programs that changed most over the runs, else the largest."""
    chips: dict[str, int]
    platforms: dict[str, str]
    """By chip."""
    chip: str
    """The initial chip, or empty."""
    capacity: int | None
    """Given instead of a chip."""
    pages: str
    """The relative folder of the programs' pages."""
    command: str
    """The command that writes the page of a program, without its id."""
