"""A store's tables in DuckDB, which also converts JSON lines to Parquet."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.fleet.schema import PARTITION, TABLES, Table
from hlomem.fleet.storage import require
from hlomem.fleet.store import Segment, Store, new_segment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
}
_CARRY = {"old_segment", "old_unit", "unit", "source", "place", "archive", "stamp"}
_ID_LENGTH = 16


def connect() -> Any:
    return require("duckdb", "a store").connect(":memory:", config=_CONFIG)


class Tables:
    def __init__(self, store: Store, only: Collection[str] | None = None) -> None:
        self.store = store
        found = store.segments()
        self.segments = [segment for segment in found if only is None or segment.segment in only]
        self.files = store.files_of(self.segments)
        self.connection = connect()
        try:
            for table in TABLES.values():
                self._add_raw(table)
            self._hide_older()
            for table in TABLES.values():
                query = f"FROM all_{table.name}"
                if self._has_older:
                    query += " ANTI JOIN older USING (segment, unit)"
                self._view(table.name, query)
            self._add_runs()
        except require("duckdb", "a store").Error as error:
            raise InputError(f"{visible(store.root)}: {visible(str(error))}") from error

    @property
    def paths(self) -> list[str]:
        return [path for paths in self.files.values() for path in paths]

    def _add_raw(self, table: Table) -> None:
        """All rows of a table; columns missing in older files are NULL."""
        columns = (*PARTITION, *table.stored)
        typed = ", ".join(f"NULL::{type_} AS {quoted(name)}" for name, type_, _ in columns)
        if not (paths := self.files.get(table.name)):
            self._view(f"all_{table.name}", f"SELECT {typed} LIMIT 0")
            return
        names = ", ".join(map(literal, paths))
        hive = "hive_types = {'run': VARCHAR, 'date': DATE}"
        rows = f"read_parquet([{names}], hive_partitioning = true, {hive}, union_by_name = true)"
        there = {row[0] for row in self.connection.execute(f"DESCRIBE FROM {rows}").fetchall()}
        chosen = ", ".join(
            quoted(name) if name in there else f"NULL::{type_} AS {quoted(name)}"
            for name, type_, _ in columns
        )
        self._view(f"all_{table.name}", f"SELECT {chosen} FROM {rows}")

    def _hide_older(self) -> None:
        """Of several segments with a source of a run, only the last counts."""
        order = "ORDER BY committed DESC, segment DESC"
        self.connection.execute(
            "CREATE TABLE older AS SELECT segment, unit FROM all_units"
            f" QUALIFY row_number() OVER (PARTITION BY run, unit {order}) > 1"
        )
        [[count]] = self.connection.execute("SELECT count(*) FROM older").fetchall()
        self._has_older = bool(count)

    def _add_runs(self) -> None:
        self._view(
            "runs",
            "SELECT run, min(committed) AS first, max(committed) AS last,"
            " sum(modules)::BIGINT AS modules, sum(errors)::BIGINT AS errors"
            " FROM units WHERE NOT is_archive GROUP BY run ORDER BY first",
        )

    def _view(self, name: str, query: str) -> None:
        self.connection.execute(f"CREATE VIEW {quoted(name)} AS {query}")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def by_program(condition: str) -> str:
    sums = "SELECT id, name, line, sum(size)::BIGINT AS size"
    return f"{sums} FROM buffers WHERE {condition} GROUP BY id, name, line"


def write_segment(
    store: Store,
    run: str,
    date: str,
    lines: Mapping[str, Sequence[bytes]],
    carried: Sequence[bytes] = (),
    tables: Tables | None = None,
) -> Segment:
    """Write a segment from JSON lines by table; `carried` says which rows of `tables` to reuse."""
    names = [name for name in TABLES if lines.get(name) or carried]
    segment = new_segment(run, date, names)
    with tempfile.TemporaryDirectory(prefix="hlomem-segment-") as folder:
        writer = _Writer(Path(folder), segment, tables if carried else None)
        writer.take_over(carried)
        made = {name: writer.write(TABLES[name], lines.get(name, ())) for name in names}
        return _commit(store, segment, made)


def merge_segments(store: Store, run: str, date: str, segments: Collection[str]) -> Segment:
    tables = Tables(store, segments)
    names = [name for name in TABLES if name in tables.files]
    segment = replace(new_segment(run, date, names), replaces=tuple(sorted(segments)))
    with tempfile.TemporaryDirectory(prefix="hlomem-segment-") as folder:
        writer = _Writer(Path(folder), segment, tables)
        return _commit(store, segment, {name: writer.merge(TABLES[name]) for name in names})


def _commit(store: Store, segment: Segment, made: Mapping[str, Path | None]) -> Segment:
    """Commit the files that have rows."""
    kept = {name: path for name, path in made.items() if path is not None}
    whole = replace(segment, files={name: segment.files[name] for name in kept})
    store.commit(whole, kept)
    return whole


class _Writer:
    def __init__(self, folder: Path, segment: Segment, tables: Tables | None) -> None:
        self._folder = folder
        self._segment = segment
        self._connection = tables.connection.cursor() if tables else connect()
        self._carries = tables is not None

    def take_over(self, carried: Sequence[bytes]) -> None:
        if not carried:
            return
        rows = self._read("carried", carried, dict.fromkeys(sorted(_CARRY), "VARCHAR"))
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE carried AS {rows}")

    def _read(self, name: str, lines: Sequence[bytes], types: Mapping[str, str]) -> str:
        path = self._folder / f"{name}.json"
        with path.open("wb") as file:
            file.writelines(lines)
        columns = ", ".join(f"{literal(name)}: {literal(type_)}" for name, type_ in types.items())
        options = "format = 'newline_delimited', maximum_object_size = 1073741824"
        return f"SELECT * FROM read_json({literal(str(path))}, columns = {{{columns}}}, {options})"

    def write(self, table: Table, lines: Sequence[bytes]) -> Path | None:
        """The file of a table; None without rows."""
        types = {name: type_ for name, type_, _ in table.stored if name != "segment"}
        names = ", ".join(quoted(name) for name, _, _ in table.stored)
        parts = []
        if lines:
            rows = self._read(table.name, lines, types)
            parts.append(f"SELECT {names} FROM ({rows}), (SELECT {self._name} AS segment)")
        if self._carries:
            parts.append(f"SELECT {names} FROM ({self._carried(table)})")
        return self._copy(table, " UNION ALL ".join(parts))

    def merge(self, table: Table) -> Path | None:
        names = ", ".join(quoted(name) for name, _, _ in table.stored)
        renamed = f"SELECT * REPLACE ({self._name} AS segment) FROM {table.name}"
        return self._copy(table, f"SELECT {names} FROM ({renamed})")

    def _copy(self, table: Table, query: str) -> Path | None:
        path = self._folder / f"{table.name}.parquet"
        target = f"{literal(str(path))} (FORMAT parquet, COMPRESSION zstd)"
        try:
            [[count]] = self._connection.execute(f"COPY ({query}) TO {target}").fetchall()
        except require("duckdb", "a store").IOException as error:  # such as a full disk
            raise InputError(f"{visible(str(path))}: {visible(str(error))}") from error
        return path if count else None

    @property
    def _name(self) -> str:
        return literal(self._segment.segment)

    def _carried(self, table: Table) -> str:
        """A query for the reused rows, with their new units."""
        new = [f"{self._name} AS segment", "c.unit AS unit"]
        if table.is_of_programs:
            new.append(f"c.unit || substr(t.id, {_ID_LENGTH + 1}) AS id")
        if table.name == "modules":
            new += ["c.source AS source", "c.place AS place"]
        if table.name == "units":
            committed = f"TIMESTAMP {literal(self._segment.committed)} AS committed"
            new += ["c.source AS source", "c.stamp AS stamp", "c.archive AS archive", committed]
        joined = (
            f"{table.name} t JOIN carried c ON t.segment = c.old_segment AND t.unit = c.old_unit"
        )
        return f"SELECT t.* REPLACE ({', '.join(new)}) FROM {joined}"
