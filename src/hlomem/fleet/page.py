"""The page of a store: its data, and files `fleet.html` and `fleet.pages/ID.html` per program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.api.advise import build_advised_page
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import HlomemError, UnknownNameError
from hlomem.base.source import visible
from hlomem.fleet.asking import LockedTables
from hlomem.fleet.growth import STEADY_PLACE
from hlomem.fleet.questions import choose_run
from hlomem.fleet.reopen import opened_memory
from hlomem.fleet.storage import is_address
from hlomem.fleet.tables import by_program, literal
from hlomem.machines.registry import CHIPS, platform_of
from hlomem.report.page.fleet import FleetError, FleetLine, FleetPage, FleetPrograms, FleetSeries
from hlomem.report.page.html import fill, format_page

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from hlomem.machines.capacity import Capacity

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
    """The data of the page; `made` are the ids of programs that have a page."""
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
            name=row["name"], place=row["place"], needs=[row["by_run"].get(run, -1) for run in runs]
        )
        for row in rows
    )


_MAIN = "fleet"


class Written(NamedTuple):
    page: Path
    made: list[str]
    problems: list[str]


def write_fleet(
    store: str,
    output: Path,
    *,
    run: str | None = None,
    capacity: Capacity | None = None,
    count: int = 0,
    force: bool = False,
    fetch: str | None = None,
) -> Written:
    """Write the page of a store, and those of its `count` largest programs, read below `fetch`."""
    tables = LockedTables(store)
    wanted = choose_run(tables, run)
    folder = output.parent / f"{output.stem}.pages"
    made, problems = [], []
    compared = ""
    if capacity and capacity.name:  # the page starts with the programs of that chip
        compared = f"AND backend = {literal(platform_of(capacity.name))}"
    worst = f"{compared} ORDER BY needs DESC, place, id LIMIT {count}"
    for row in _program_rows(tables, wanted, worst):
        try:
            _write_page(row, folder, capacity, fetch or _host_of(store))
            made.append(str(row["id"]))
        except HlomemError as error:
            problems.append(str(error))
    there = {path.stem for path in folder.glob("*.html")} if folder.is_dir() else set()
    page = build_fleet_page(
        tables,
        wanted,
        chip=capacity.name if capacity else "",
        capacity=capacity.size if capacity and not capacity.name else None,
        pages=folder.name,
        made=there,
        command=f"hlomem html {store} -o {output.name} --program",
    )
    text = fill(_MAIN, f"fleet, run {visible(wanted)}", {"fleet": page})
    write_files(output.parent, {output.name: [text.encode()]}, force=force)
    return Written(output, made, problems)


def write_program(
    store: str, output: Path, id_: str, *, run: str | None = None, fetch: str | None = None
) -> Path:
    """Write the page of one program where the store's page links to it."""
    tables = LockedTables(store)
    rows = _program_rows(tables, choose_run(tables, run), f"AND id = {literal(id_)}")
    if not rows:
        raise UnknownNameError(f"no program `{visible(id_)}` in this run; ids: ask STORE"
                               " 'SELECT id, name FROM modules'")  # fmt: skip
    pages = output.parent / f"{output.stem}.pages"
    return _write_page(rows[0], pages, None, fetch or _host_of(store))


def _host_of(store: str) -> str:
    """Protocol and host, or bucket, of a remote store; empty for a local one."""
    return "/".join(store.split("/")[:3]) if is_address(store) else ""


def _program_rows(tables: LockedTables, run: str, rest: str) -> list[dict[str, Any]]:
    return tables.rows(
        "SELECT id, m.source, m.key, recipe FROM modules m JOIN units u USING (run, unit)"
        f" WHERE run = {literal(run)} AND status = 'ok' {rest}"
    )


def _write_page(row: dict[str, Any], folder: Path, capacity: Capacity | None, fetch: str) -> Path:
    with opened_memory(row, fetch) as memory:
        text = format_page([build_advised_page(memory, capacity)])
    write_files(folder, {f"{row['id']}.html": [text.encode()]}, force=True)
    return folder / f"{row['id']}.html"
