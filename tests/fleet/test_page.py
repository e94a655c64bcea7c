"""The page of a store: all programs in one file, some with pages of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.cli import main
from hlomem.fleet import ask

pytest.importorskip("duckdb")


def test_a_store_has_a_page_and_its_largest_programs_have_theirs(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "fleet.html"
    command = ["html", str(store), "-o", str(page)]
    assert main([*command, "--capacity", "v5e", "--pages", "1"]) == 0
    assert capsys.readouterr().err.endswith(f"{page}\n")
    query = "SELECT id FROM modules WHERE status = 'ok' ORDER BY needs DESC, place, id"
    [first, *_, last] = [row[0] for row in ask(store, query).fetchall()]
    folder = tmp_path / "fleet.pages"
    assert [path.stem for path in folder.iterdir()] == [first]
    assert main([*command, "--program", last]) == 0
    assert {path.stem for path in folder.iterdir()} == {first, last}
    assert main(command) == 2  # it is there


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--run", "never"], "never"),
        (["--program", "none-0"], "none-0"),
        (["--chip", "v5e"], "a store has one page for all programs; give it alone"),
    ],
)
def test_what_a_store_has_not_is_said(
    store: Path, tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["html", str(store), "-o", str(tmp_path / "x.html"), *words]) in (2, 3)
    assert says in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()
