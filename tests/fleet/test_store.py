"""Stores of other schemas, and the files of this one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hlomem.base.errors import InputError
from hlomem.fleet import ask
from hlomem.fleet.schema import MARKER, PARTITION, SCHEMA, TABLES, describe
from hlomem.fleet.store import _read_manifest
from tests.places import ROOT

duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def copied(store: Path, tmp_path: Path) -> Path:
    """A store to damage."""
    return Path(shutil.copytree(store, tmp_path / "copied"))


def _rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_store_of_an_older_schema_is_refused_with_the_way_out(copied: Path) -> None:
    _rewrite(copied / MARKER, schema=0)
    with pytest.raises(
        InputError, match=r"schema 0.*scan its sources into a new store: hlomem scan"
    ):
        ask(copied, "FROM modules")


def test_a_store_of_a_newer_schema_is_refused(copied: Path) -> None:
    _rewrite(copied / MARKER, schema=SCHEMA + 1)
    with pytest.raises(InputError, match="upgrade hlomem"):
        ask(copied, "FROM modules")
    _rewrite(copied / MARKER, schema=SCHEMA)
    _rewrite(next(copied.glob("segments/*.json")), schema=SCHEMA + 1)
    with pytest.raises(InputError, match="upgrade hlomem"):
        ask(copied, "FROM modules")


def test_a_column_that_older_files_lack_is_null(copied: Path) -> None:
    [path] = copied.glob("modules/*/*/*.parquet")
    other = path.with_suffix(".new")
    duckdb.sql(f"COPY (SELECT * EXCLUDE (peak_line) FROM '{path}') TO '{other}' (FORMAT parquet)")
    other.replace(path)
    assert ask(copied, "SELECT DISTINCT peak_line FROM modules").fetchall() == [(None,)]
    assert ask(copied, "SELECT count(needs) > 0 FROM modules").fetchall() == [(True,)]


def test_a_manifest_that_names_files_outside_is_refused(copied: Path) -> None:
    _rewrite(next(copied.glob("segments/*.json")), files={"modules": "../x.parquet"})
    with pytest.raises(InputError, match="names a file outside"):
        ask(copied, "FROM modules")


def test_a_file_that_is_missing_or_damaged_is_said(copied: Path) -> None:
    [path] = copied.glob("modules/*/*/*.parquet")
    path.write_bytes(b"PAR1")
    with pytest.raises(InputError, match="copied: "):
        ask(copied, "FROM modules")


def test_files_are_partitioned_by_run_and_date(store: Path) -> None:
    for path in store.rglob("*.parquet"):
        table, run, date = path.relative_to(store).parts[:3]
        assert table in TABLES
        assert run == "run=first"
        assert date.startswith("date=20")


def test_every_column_has_its_type_and_is_documented(store: Path) -> None:
    page = (ROOT / "docs/fleet.md").read_text()
    assert describe() in page
    for table in TABLES.values():
        found = ask(store, f"DESCRIBE {table.name}").fetchall()
        wanted = [(name, type_) for name, type_, _ in (*PARTITION, *table.stored)]
        assert [row[:2] for row in found] == wanted


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "damaged"), ('{"kind": "other", "schema": 1}', "not a store of hlomem")],
)
def test_a_marker_that_is_none_is_said(copied: Path, content: str, says: str) -> None:
    (copied / MARKER).write_text(content)
    with pytest.raises(InputError, match=says):
        ask(copied, "FROM modules")


def test_a_manifest_that_is_none_is_said(copied: Path) -> None:
    next(copied.glob("segments/*.json")).write_text("[]")
    with pytest.raises(InputError, match="not a manifest of a store"):
        ask(copied, "FROM modules")


def test_a_manifest_that_was_just_swept_away_does_not_count(tmp_path: Path) -> None:
    assert _read_manifest(str(tmp_path / "gone.json")) is None
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(InputError, match=r"folder\.json: Is a directory"):
        _read_manifest(str(tmp_path / "folder.json"))
