"""The data of a fleet's page: all programs of a run, how they grew, and the lines they come from.

In: a store's tables. Out: `FleetPage`, which goes into the page as JSON; the page only draws it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.fleet.growth import STEADY_PLACE
from hlomem.fleet.tables import by_program, literal
from hlomem.machines.registry import CHIPS, platform_of
from hlomem.report.page.fleet import (
    FleetError,
    FleetLine,
    FleetPage,
    FleetPrograms,
    FleetSeries,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from hlomem.fleet.asking import LockedTables

_MAX_PROGRAMS = 20_000
_MAX_LINES = 25
_MAX_SERIES = 8
_MAX_RUNS = 60


def build_fleet_page(
    tables: LockedTables,
    run: str,
    *,
    chip: str = "",
    capacity: int | None = None,
    pages: str = "",
    made: Collection[str] = (),
    command: str = "",
) -> FleetPage:
    """The data of the page; `made` are the programs whose own pages are there."""
    runs = [row["run"] for row in tables.rows("SELECT run FROM runs ORDER BY first, run")]
    runs = runs[-_MAX_RUNS:]
    is_run = f"run = {literal(run)}"
    [count] = tables.rows(f"SELECT count(*) AS n FROM modules WHERE {is_run} AND status = 'ok'")
    return FleetPage(
        run=run,
        runs=runs,
        programs=_programs(tables, is_run, frozenset(made)),
        left_out=max(0, count["n"] - _MAX_PROGRAMS),
        errors=_errors(tables, is_run),
        lines=_lines(tables, is_run),
        series=_series(tables, runs),
        chips={name: known.size for name, known in CHIPS.items()},
        platforms={name: platform_of(name) for name in CHIPS},
        chip=chip,
        capacity=capacity,
        pages=pages,
        command=command,
    )


def _programs(tables: LockedTables, is_run: str, made: frozenset[str]) -> FleetPrograms:
    rows = tables.rows(
        "SELECT id, name, place, backend, needs, coalesce(peak, -1) AS peak,"
        " padding_bytes AS padding, copy_bytes AS copies, donatable_bytes AS donatable"
        f" FROM modules WHERE {is_run} AND status = 'ok'"
        f" ORDER BY needs DESC, place, id LIMIT {_MAX_PROGRAMS}"
    )
    names = [name for name in FleetPrograms.__struct_fields__ if name != "has_page"]
    columns = {name: [row[name] for row in rows] for name in names}
    return FleetPrograms(**columns, has_page=[row["id"] in made for row in rows])


def _errors(tables: LockedTables, is_run: str) -> tuple[FleetError, ...]:
    rows = tables.rows(
        "SELECT error_kind AS kind, count(*) AS count, min(error) AS example FROM modules"
        f" WHERE {is_run} AND status = 'error' GROUP BY error_kind ORDER BY count DESC, error_kind"
    )
    return tuple(FleetError(**row) for row in rows)


def _lines(tables: LockedTables, is_run: str) -> tuple[FleetLine, ...]:
    rows = tables.rows(
        "SELECT line, sum(size)::BIGINT AS size, count(*) AS programs,"
        f" arg_max(name, size) AS largest FROM ({by_program(is_run)})"
        f" GROUP BY line ORDER BY size DESC, line LIMIT {_MAX_LINES}"
    )
    return tuple(FleetLine(**row) for row in rows)


def _series(tables: LockedTables, runs: list[str]) -> tuple[FleetSeries, ...]:
    """Programs of one place and name, run by run."""
    chosen = ", ".join(map(literal, runs))
    rows = tables.rows(
        f"WITH seen AS (SELECT {STEADY_PLACE} AS place, coalesce(program, '') AS program,"
        " name, run, max(needs) AS needs FROM modules"
        f" WHERE status = 'ok' AND run IN ({chosen}) GROUP BY ALL),"
        " ranked AS (SELECT place, program, any_value(name) AS name,"
        " max(needs) - min(needs) AS swing, max(needs) AS most,"
        " map_from_entries(list((run, needs))) AS by_run FROM seen GROUP BY place, program)"
        f" FROM ranked ORDER BY swing DESC, most DESC, place LIMIT {_MAX_SERIES}"
    )
    return tuple(
        FleetSeries(
            name=row["name"],
            place=row["place"],
            needs=[row["by_run"].get(run, -1) for run in runs],
        )
        for row in rows
    )
