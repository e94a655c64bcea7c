"""`hlomem scan` and `hlomem ask` from outside: what cannot be read is told, and counted."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.places import GOLDENS

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, a damaged one and a damaged archive."""
    folder = tmp_path_factory.mktemp("mixed")
    shutil.copytree(GOLDENS / "pairs" / "batch_doubled" / "before", folder / "good")
    (folder / "m.after_optimizations.txt").write_text("HloModule m\n\nENTRY %e {\n  %a = f32[8\n")
    (folder / "more.tar.gz").write_bytes(b"\x1f\x8bno archive")
    return folder


@pytest.fixture
def store(run: Run, mixed: Path, tmp_path: Path) -> Path:
    """It, scanned."""
    assert run("scan", mixed, "-o", tmp_path / "store", "--workers", "1").code in (0, 1)
    return tmp_path / "store"


def test_errors_are_counted_and_asked_for(run: Run, store: Path) -> None:
    rows = run("ask", store, "SELECT status, count(*) AS n FROM modules GROUP BY ALL ORDER BY ALL")
    assert [line.split() for line in rows.out.decode().splitlines()[-2:]] == [
        ["error", "2"],
        ["ok", "1"],
    ]
    top = run("ask", store, "top")
    assert (top.code, "2 inputs could not be read" in top.out.decode()) == (0, True)


def test_another_run_takes_over_what_did_not_change_errors_too(
    run: Run, store: Path, mixed: Path
) -> None:
    again = run("scan", mixed, "-o", store, "--workers", "1", "--run", "other")
    assert "2 unchanged" in again.out.decode()


def test_on_a_terminal_a_bar_is_drawn_and_taken_away(
    run: Run, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    result = run("scan", mixed, "-o", tmp_path / "other", "--workers", "1")
    assert result.code in (0, 1)
    assert "2 of them with an error" in result.out.decode() + result.err


def test_a_place_that_is_no_store_is_refused_before_anything_is_read(
    run: Run, mixed: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("mine")
    for place in (tmp_path, tmp_path / "mine"):
        result = run("scan", mixed, "-o", place)
        assert result.code == 2
        assert "is not a store and not empty; give a new folder" in result.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["top", "jit_step"], "`top` takes no names; `together` does"),
        (["SELECT", "1"], "give one query: put SQL in quotes"),
    ],
)
def test_words_that_a_question_does_not_take_are_refused(
    run: Run, store: Path, words: list[str], says: str
) -> None:
    result = run("ask", store, *words)
    assert (result.code, result.out) == (2, b"")
    assert says in result.err


def test_rows_that_are_not_printed_are_counted(run: Run, store: Path) -> None:
    result = run("ask", store, "SELECT * FROM range(150)")
    assert b"50 more rows: --json has all, LIMIT fewer" in result.out


def test_a_size_that_is_none_is_refused_before_anything_is_read(run: Run, tmp_path: Path) -> None:
    result = run("scan", tmp_path, "-o", tmp_path / "store", "--memory", "much")
    assert result.code == 2
    assert "`much` is not a size such as 4GiB or 500M" in result.err


def test_a_question_that_is_neither_ready_nor_sql_is_refused(run: Run, store: Path) -> None:
    result = run("ask", store, "biggest")
    assert result.code == 2
    assert "the query was rejected" in result.err
