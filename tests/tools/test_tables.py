"""Tables in documents: written between their marks, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.tables import head, held, put, row


def test_a_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    marks = "<!-- {0}: begin -->\nold\n<!-- {0}: end -->\n"
    page.write_text("# Page\n\n" + marks.format("one") + "\nbetween\n" + marks.format("two"))
    table = "\n".join([*head(["name", "bytes"], ["---", "---:"]), row(["a|b", "3"])])
    for _ in range(2):
        put(page, "one", table)
        assert held(page, "one") == "| name | bytes |\n|---|---:|\n| a/b | 3 |"
        assert held(page, "two") == "old"
    assert page.read_text().count("between") == 1


def test_a_page_without_the_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- one: begin -->\n")
    with pytest.raises(SystemExit, match="no lines `<!-- one: begin -->` and `<!-- one: end -->`"):
        put(page, "one", "new")
    assert page.read_text() == "<!-- one: begin -->\n"
