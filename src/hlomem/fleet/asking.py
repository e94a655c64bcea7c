"""`hlomem.fleet.ask`: SQL over a store, which can look at the store and at nothing else.

In: a store and one query. Out: a DuckDB relation. Before the query is read, DuckDB is told to touch
no file but those of the store, to load no extension and to keep these settings; of all statements
only a query is taken, and it runs where nothing may be written.
"""

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
    """The answer to a query, as a relation of DuckDB: `.fetchall()`, `.df()`, `.arrow()`.

    docs/fleet.md lists the tables; `SHOW TABLES` and `DESCRIBE modules` are queries, too.
    """
    return LockedTables(str(store)).query(sql)


class LockedTables:
    """The tables of a store for somebody else's queries."""

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
        """Leaves what an error has left behind."""
        self._connection.execute("ROLLBACK")
        self._connection.execute(_READ_ONLY)

    def query(self, sql: str) -> DuckDBPyRelation:
        """The answer to one query."""
        duckdb = require("duckdb", "a store")
        try:
            statements = self._connection.extract_statements(sql)
        except duckdb.Error as error:
            raise _refused(error) from error
        if len(statements) != 1:
            raise CommandError(f"{len(statements)} statements; give one query")
        if statements[0].type != duckdb.StatementType.SELECT:
            kind = str(statements[0].type).rpartition(".")[2]
            raise CommandError(f"{kind} is no query; a store is only read: SELECT … FROM modules")
        try:
            relation: DuckDBPyRelation | None = self._connection.sql(sql)
        except duckdb.Error as error:
            self._start_again()
            raise _refused(error) from error
        assert relation is not None  # only statements other than SELECT have none
        return relation

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The answer to one query, as dictionaries."""
        relation = self.query(sql)
        try:
            found = relation.fetchall()
        except require("duckdb", "a store").Error as error:
            self._start_again()
            raise _refused(error) from error
        return [dict(zip(relation.columns, row, strict=True)) for row in found]


def _refused(error: Exception) -> CommandError:
    return CommandError(f"the query was refused: {visible(str(error).partition(chr(10))[0])}")
