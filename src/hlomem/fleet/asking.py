"""`hlomem.fleet.ask`: one SQL query over a store's files, and over nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.fleet.storage import require
from hlomem.fleet.store import open_store
from hlomem.fleet.tables import Tables, literal

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyRelation

_READ_ONLY = "BEGIN TRANSACTION READ ONLY"


def ask(store: str | Path, sql: str) -> DuckDBPyRelation:
    """A query's answer, a DuckDB relation (`.df()`, `.arrow()`); docs/fleet.md lists the tables."""
    return LockedTables(str(store)).query(sql)


class LockedTables:
    """The tables of a store for untrusted queries."""

    def __init__(self, store: str) -> None:
        self.tables = Tables(open_store(store))
        self._connection = self.tables.connection
        paths = ", ".join(map(literal, self.tables.paths))
        for setting in (
            f"SET allowed_paths = [{paths}]",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
            _READ_ONLY,
        ):
            self._connection.execute(setting)

    def _start_again(self) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.execute(_READ_ONLY)

    def query(self, sql: str) -> DuckDBPyRelation:
        duckdb = require("duckdb", "a store")
        try:
            statements = self._connection.extract_statements(sql)
        except duckdb.Error as error:
            raise _refused(error) from error
        if len(statements) != 1:
            raise CommandError(f"{len(statements)} statements; give one query")
        if statements[0].type != duckdb.StatementType.SELECT:
            kind = str(statements[0].type).rpartition(".")[2]
            raise CommandError(f"{kind} is not a query; stores are read-only: SELECT … FROM …")
        try:
            relation: DuckDBPyRelation | None = self._connection.sql(sql)
        except duckdb.Error as error:
            self._start_again()
            raise _refused(error) from error
        assert relation is not None  # every SELECT has one
        return relation

    def rows(self, sql: str) -> list[dict[str, Any]]:
        relation = self.query(sql)
        try:
            found = relation.fetchall()
        except require("duckdb", "a store").Error as error:
            self._start_again()
            raise _refused(error) from error
        return [dict(zip(relation.columns, row, strict=True)) for row in found]


def _refused(error: Exception) -> CommandError:
    return CommandError(f"the query was rejected: {visible(str(error).partition(chr(10))[0])}")
