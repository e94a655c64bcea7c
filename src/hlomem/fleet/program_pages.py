"""The page of a fleet as files: itself, and beside it the pages of programs.

In: a store. Out: `fleet.html`, and for programs that are asked for `fleet.pages/ID.html`, made from
the programs' sources by the report that `hlomem html` writes of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.advice.page import build_advised_page
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import HlomemError, UnknownNameError
from hlomem.base.source import visible
from hlomem.fleet.asking import LockedTables
from hlomem.fleet.page import build_fleet_page
from hlomem.fleet.questions import choose_run
from hlomem.fleet.reopen import opened_memory
from hlomem.fleet.storage import is_address
from hlomem.fleet.tables import literal
from hlomem.machines.registry import platform_of
from hlomem.report.page.html import fill, format_page

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from hlomem.machines.capacity import Capacity

_MAIN = "fleet"


class Written(NamedTuple):
    """The pages that were written, and those that could not be."""

    page: Path
    made: list[str]
    """Programs whose pages were made now."""
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
    """Writes the page of a store, and the pages of the programs that need most.

    Programs that lie elsewhere are read again below the address `fetch`, by default where the
    store lies.
    """
    tables = LockedTables(store)
    wanted = choose_run(tables, run)
    folder = output.parent / f"{output.stem}.pages"
    made, problems = [], []
    compared = ""
    if capacity and capacity.name:  # the page begins with what is compared with that chip
        compared = f"AND backend = {literal(platform_of(capacity.name))}"
    worst = f"{compared} ORDER BY needs DESC, place, id LIMIT {count}"
    for row in _rows(tables, wanted, worst):
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
    """Writes the page of one program where the fleet's page looks for it."""
    tables = LockedTables(store)
    rows = _rows(tables, choose_run(tables, run), f"AND id = {literal(id_)}")
    if not rows:
        raise UnknownNameError(f"no program `{visible(id_)}` in this run; ids: ask STORE"
                               " 'SELECT id, name FROM modules'")  # fmt: skip
    pages = output.parent / f"{output.stem}.pages"
    return _write_page(rows[0], pages, None, fetch or _host_of(store))


def _host_of(store: str) -> str:
    """Protocol and host, or bucket, of a store's address; empty for a folder of this machine."""
    return "/".join(store.split("/")[:3]) if is_address(store) else ""


def _rows(tables: LockedTables, run: str, rest: str) -> list[dict[str, Any]]:
    return tables.rows(
        "SELECT id, m.source, m.key, recipe FROM modules m JOIN units u USING (run, unit)"
        f" WHERE run = {literal(run)} AND status = 'ok' {rest}"
    )


def _write_page(row: dict[str, Any], folder: Path, capacity: Capacity | None, fetch: str) -> Path:
    with opened_memory(row, fetch) as memory:
        text = format_page([build_advised_page(memory, capacity)])
    write_files(folder, {f"{row['id']}.html": [text.encode()]}, force=True)
    return folder / f"{row['id']}.html"
