"""SQL from a user reads the store, and can do nothing else."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from hlomem.base.errors import CommandError
from hlomem.cli import main
from hlomem.fleet import ask
from hlomem.fleet.asking import LockedTables

duckdb = pytest.importorskip("duckdb")

SECRET = "nobody's business"  # noqa: S105 - what no query may read


@pytest.fixture(scope="module")
def locked(store: Path) -> LockedTables:
    """The tables as a user has them."""
    return LockedTables(str(store))


def test_an_answer_is_a_relation(store: Path) -> None:
    relation = ask(store, "SELECT name, needs FROM modules ORDER BY needs DESC LIMIT 3")
    assert isinstance(relation, duckdb.DuckDBPyRelation)
    assert relation.columns == ["name", "needs"]
    assert len(relation.fetchall()) == 3


def test_an_answer_can_become_an_arrow_table(store: Path) -> None:
    pytest.importorskip("pyarrow")
    assert ask(store, "SELECT name FROM modules LIMIT 2").arrow().read_all().num_rows == 2


def test_tables_can_be_looked_at(locked: LockedTables) -> None:
    names = {row["name"] for row in locked.rows("SHOW TABLES")}
    assert {"modules", "allocations", "buffers", "padding", "donations", "copies"} <= names
    assert {"runs", "findings", "advice", "roles", "spaces", "units"} <= names
    assert locked.rows("DESCRIBE modules")[0]["column_name"] == "run"


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is not the store's, with something in it."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret.csv").write_text(SECRET)
    return folder


WRITES = [
    "COPY modules TO '{outside}/new.csv'",
    "COPY modules TO '{store}/new.parquet'",
    "COPY (SELECT 1) TO '{file}'",
    "EXPLAIN ANALYZE COPY modules TO '{outside}/new.csv'",
    "EXPORT DATABASE '{outside}'",
    "ATTACH '{outside}/new.db'",
    "ATTACH '{store}/new.db'",
    "CREATE TABLE mine AS SELECT 1",
    "CREATE OR REPLACE VIEW modules AS SELECT 1",
    "DROP VIEW modules",
    "INSERT INTO older VALUES ('a', 'b')",
    "WITH gone AS (DELETE FROM older RETURNING *) SELECT * FROM gone",
    "WITH more AS (INSERT INTO older VALUES ('a', 'b') RETURNING *) SELECT * FROM more",
    "FROM query('COPY modules TO ''{outside}/new.csv''')",
    "FROM enable_logging(storage='file', storage_path='{outside}/log')",
    "FROM enable_profiling(save_location='{outside}/profile')",
    "CALL enable_logging()",
    "PRAGMA enable_profiling",
    "CHECKPOINT",
]
READS = [
    "FROM read_csv('{outside}/secret.csv')",
    "FROM read_text('{outside}/secret.csv')",
    "FROM read_blob('{outside}/*')",
    "FROM '{outside}/secret.csv'",
    "FROM glob('{outside}/*')",
    "FROM glob('{store}/*')",
    "FROM sniff_csv('{outside}/secret.csv')",
    "FROM read_json_objects('{outside}/secret.csv')",
    "FROM read_text('{store}/../{name}/secret.csv')",
    "SELECT * FROM query('FROM read_text(''{outside}/secret.csv'')')",
    "COPY modules FROM '{outside}/secret.csv'",
    "FROM read_text('/proc/self/environ')",
    "IMPORT DATABASE '{outside}'",
    "FROM duckdb_secrets()",
]
SETTINGS = [
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{outside}/x.duckdb_extension'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET allowed_paths",
    "SET autoload_known_extensions = true",
    "CREATE SECRET s (TYPE s3)",
    "SELECT 1; COPY modules TO '{outside}/new.csv'",
    "",
    "SELECT",
    "EXECUTE mine",
]


@pytest.mark.parametrize("sql", [*WRITES, *READS, *SETTINGS])
def test_a_hostile_query_is_refused(
    sql: str, locked: LockedTables, store: Path, outside: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    places = {"outside": outside, "store": store, "name": outside.name}
    with pytest.raises(CommandError):
        locked.rows(sql.format(**places, file=locked.tables.paths[0]))
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before
    assert [path.name for path in outside.iterdir()] == ["secret.csv"]
    assert locked.rows("SELECT count(*) > 0 AS is_whole FROM modules") == [{"is_whole": True}]


def test_no_function_of_duckdb_reads_another_file(locked: LockedTables, outside: Path) -> None:
    kinds = "function_type IN ('table', 'table_macro', 'scalar')"
    found = locked.rows(
        f"SELECT DISTINCT function_name AS name FROM duckdb_functions() WHERE {kinds}"
    )
    names = sorted(row["name"] for row in found if row["name"].isidentifier())
    assert len(names) > 300
    told = []
    for name in names:
        for query in ("FROM {}('{}')", "SELECT {}('{}')"):
            try:
                rows = locked.rows(query.format(name, outside / "secret.csv"))
            except CommandError:
                continue
            if SECRET in str(rows):
                told.append(name)
    assert told == []
    assert [path.name for path in outside.iterdir()] == ["secret.csv"]


def test_no_query_reaches_the_network(locked: LockedTables) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        reached = []

        def listen() -> None:
            try:
                reached.append(server.accept())
            except TimeoutError:
                return

        thread = threading.Thread(target=listen)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/x.parquet"
        for query in (f"FROM '{address}'", f"FROM read_parquet('{address}')"):
            with pytest.raises(CommandError):
                locked.rows(query)
        thread.join()
    assert reached == []


def test_python_variables_are_no_tables(locked: LockedTables) -> None:
    secret = duckdb.sql("SELECT 1")
    assert secret is not None
    with pytest.raises(CommandError, match="does not exist"):
        locked.rows("FROM secret")


def test_the_command_prints_a_table_or_json(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ask", str(store), "SELECT 1 AS one, 'x' AS other"]) == 0
    assert capsys.readouterr().out == "one  other\n  1  x\n"
    assert main(["ask", str(store), "SELECT DATE '2026-11-15' AS day", "--json"]) == 0
    assert '"rows":[{"day":"2026-11-15"}]' in capsys.readouterr().out
    assert main(["ask", str(store), "SELECT nothing"]) == 2
    assert "the query was rejected: Binder Error" in capsys.readouterr().err
    assert main(["ask", str(store.parent), "top"]) == 3
    assert "not a store; `hlomem scan PATH -o STORE` makes one" in capsys.readouterr().err
