"""The ready questions, against sums made by hand or by the commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import hlomem
from hlomem.base.errors import CommandError, UnknownNameError
from hlomem.cli import main
from hlomem.fleet import ask, scan
from hlomem.fleet.answers import draw_answer, draw_table
from hlomem.fleet.questions import QUESTIONS, answer
from hlomem.fleet.schema import MARKER
from hlomem.machines.capacity import parse_capacity
from tests.places import GOLDENS

pytest.importorskip("duckdb")


def _all(store: Path, sql: str) -> list[tuple[Any, ...]]:
    return ask(store, sql).fetchall()


def test_top_lists_what_needs_most(store: Path) -> None:
    found = answer(str(store), "top", limit=3)
    assert [row["needs"] for row in found.rows] == [
        needs for (needs,) in _all(store, "SELECT needs FROM modules ORDER BY needs DESC LIMIT 3")
    ]


def test_over_counts_programs_of_the_chips_platform(store: Path) -> None:
    found = answer(str(store), "over", capacity="v5e")
    size = parse_capacity("v5e").size
    [[over]] = _all(store, f"SELECT count(*) FROM modules WHERE backend='tpu' AND needs > {size}")
    assert found.totals["over"] == over == 1
    assert "only programs for tpu are compared" in found.notes
    with pytest.raises(CommandError, match="--capacity"):
        answer(str(store), "over")


@pytest.mark.parametrize(
    ("question", "total", "column", "limit"),
    [("padding", "padding", "padding", 9999), ("lines", "size", "size", 9999)],
)
def test_rows_add_up_to_the_total(
    store: Path, question: str, total: str, column: str, limit: int
) -> None:
    found = answer(str(store), question, limit=limit)
    assert sum(row[column] for row in found.rows) == found.totals[total] > 0


def test_donations_are_those_of_the_programs(store: Path) -> None:
    found = answer(str(store), "donations", limit=9999)
    for state in ("possible", "lost"):
        sizes = [row["size"] for row in found.rows if row["state"] == state]
        assert sum(sizes) == found.totals[state]


def test_what_grew_has_the_causes_of_diff(tmp_path: Path) -> None:
    pair, store = GOLDENS / "pairs/batch_doubled", tmp_path / "store"
    for run, side in (("monday", "before"), ("tuesday", "after")):
        shutil.copytree(pair / side, tmp_path / run / "model")
        scan([tmp_path / run], store, run=run, workers=1)
    found = answer(str(store), "grown", since="monday", run="tuesday")
    diff = hlomem.diff(pair / "before", pair / "after")
    [row] = found.rows
    assert row["delta"] == diff.delta == found.totals["grown_bytes"] > 0
    assert row["told_by"] == "diff"
    assert diff.causes[0].text in row["causes"][0]
    shutil.rmtree(tmp_path / "monday")
    [row] = answer(str(store), "grown", since="monday", run="tuesday").rows
    assert row["told_by"] == "roles"
    assert row["causes"]
    back = answer(str(store), "grown", since="tuesday", run="monday")
    assert (back.totals["grown"], back.totals["shrunk"]) == (0, 1)


def test_together_counts_shared_arguments_once(store: Path) -> None:
    found = answer(str(store), "together", ["train_step*", "cpu_train_step*"])
    names = [row["name"] for row in found.rows]
    assert len(names) > 1
    rows = found.rows
    assert found.totals["arguments_apart"] == sum(row["arguments"] for row in rows)
    assert found.totals["rest"] == max(row["needs"] - row["arguments"] for row in rows)
    assert found.totals["apart"] == found.totals["arguments_apart"] + found.totals["rest"]
    shared = sum(row["shared"] for row in rows)
    assert found.totals["arguments_shared"] <= found.totals["arguments_apart"] - shared // 2
    assert any("code of" in note and "unknown" in note for note in found.notes)


def test_one_program_together_with_itself_needs_what_it_needs(store: Path) -> None:
    [[id_, needs]] = _all(store, "SELECT id, needs FROM modules ORDER BY needs DESC LIMIT 1")
    found = answer(str(store), "together", [id_])
    assert (found.totals["shared"], found.totals["apart"]) == (needs, needs)


def test_names_that_are_not_there_are_refused_with_those_that_are(store: Path) -> None:
    with pytest.raises(UnknownNameError, match="there are train_step"):
        answer(str(store), "together", ["train_stop"])
    with pytest.raises(UnknownNameError, match="such as first"):
        answer(str(store), "top", run="fist")


def test_a_question_that_cannot_be_answered_says_what_it_needs(store: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="unknown question `tip`: top, "):
        answer(str(store), "tip")
    with pytest.raises(CommandError, match="needs --since RUN"):
        answer(str(store), "grown")
    with pytest.raises(CommandError, match="needs names of programs"):
        answer(str(store), "together")
    shutil.copytree(store, tmp_path / "empty", ignore=shutil.ignore_patterns("*.json"))
    shutil.copy(store / MARKER, tmp_path / "empty" / MARKER)
    with pytest.raises(CommandError, match="nothing was scanned into this store yet"):
        answer(str(tmp_path / "empty"), "top")


def test_a_table_leaves_out_what_is_null_and_is_too_wide_where_names_cannot_be_shorter() -> None:
    rows: list[dict[str, Any]] = [{"name": "a" * 40, "needs": None}, {"name": "b", "needs": 3}]
    lines = ["".join(text for text, _ in line) for line in draw_table(["name", "needs"], rows, 30)]
    assert [len(line) for line in lines] == [30, 23, 30]
    assert lines[2].split() == ["b", "3"]
    assert draw_table(["name", "needs"], rows, 1) == draw_table(["name", "needs"], rows, 5)


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_fit_the_screen_and_are_json(
    question: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"over": ["--capacity", "16GiB"], "grown": ["--since", "first"]}.get(question, [])
    names = ["train_step"] if question == "together" else []
    assert main(["ask", str(store), question, *names, *more]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert main(["ask", str(store), question, *names, *more, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["kind"], said["question"]) == ("answer", question)
    assert draw_answer(answer(str(store), "top"), 60)
