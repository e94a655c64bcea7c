"""`hlomem pack` from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlomem.packer import solve
from tests.cli.conftest import Run
from tests.packer.problems import GAP

PROBLEM = b"id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """The example of MiniMalloc's own documentation."""
    path = tmp_path / "problem.csv"
    path.write_bytes(PROBLEM)
    return path


def test_the_heap_is_shown_with_its_bound(run: Run, problem: Path) -> None:
    result = run("pack", problem)
    assert (result.code, result.err) == (0, "")
    assert b"at the bound: " in result.out
    assert b"  heap      12 B\n  bound     12 B\n" in result.out


@pytest.mark.parametrize(
    ("capacity", "code", "status"),
    [("12", 0, "fits"), ("1KiB", 0, "fits"), ("11", 1, "proven not to fit"), ("9" * 40, 0, "fits")],
)
def test_a_capacity_decides_the_exit_code(
    run: Run, problem: Path, capacity: str, code: int, status: str
) -> None:
    result = run("pack", problem, "--capacity", capacity)
    assert result.code == code
    assert result.out.decode().splitlines()[1].startswith(f"{status}: ")


def test_what_stays_open_is_said(run: Run) -> None:
    rows = [f"{b.id},{b.lower},{b.upper},{b.size},{b.alignment}" for b in GAP]
    text = "\n".join(["id,lower,upper,size,alignment", *rows]).encode()
    open_heap = run("pack", "-", "--effort", "0", stdin=text)
    assert open_heap.code == 0
    assert b"\nunknown within effort: a smaller heap may exist" in open_heap.out
    open_question = run("pack", "-", "--effort", "0", "--capacity", "17", stdin=text)
    assert open_question.code == 1
    assert b"\nunknown within effort: neither a packing nor a proof" in open_question.out
    assert run("pack", "-", "--capacity", "17", stdin=text).code == 0
    proven = run("pack", "-", "--capacity", "16", stdin=text)
    assert proven.code == 1
    assert b"\nproven not to fit: " in proven.out


def test_the_solution_is_written_once(run: Run, problem: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "solution.csv"
    assert run("pack", problem, "-o", out).code == 0
    header, *rows = out.read_text().splitlines()
    assert header == "id,lower,upper,size,offset"
    assert [row.rsplit(",", 1)[0] for row in rows] == PROBLEM.decode().splitlines()[1:]
    refused = run("pack", problem, "-o", out)
    assert (refused.code, refused.out) == (2, b"")
    assert "exists; give --force" in refused.err
    assert run("pack", problem, "-o", out, "--force").code == 0
    assert run("pack", out, "--capacity", "12").code == 0


def test_nothing_is_written_when_it_does_not_fit(run: Run, problem: Path, tmp_path: Path) -> None:
    assert run("pack", problem, "--capacity", "8", "-o", tmp_path / "out.csv").code == 1
    assert not (tmp_path / "out.csv").exists()


def test_json_has_all_of_it(run: Run) -> None:
    result = run("pack", "-", "--json", "--capacity", "12", stdin=PROBLEM)
    content = json.loads(result.out)
    assert content["kind"] == "packing"
    assert (content["status"], content["height"], content["capacity"]) == ("fits", 12, 12)
    assert sorted(content["offset_of"]) == ["b1", "b2", "b3", "b4", "b5"]


def test_large_numbers_stay_numbers(run: Run) -> None:
    text = f"id,lower,upper,size\nx,0,1,{10**40}\n".encode()
    assert json.loads(run("pack", "-", "--json", stdin=text).out)["height"] == 10**40


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--capacity", "much"], 2, "`much` is not a size such as"),
        (["--effort", "-1"], 2, "-1 is not in the range"),
    ],
)
def test_wrong_usage_is_refused(run: Run, arguments: list[str], code: int, problem: str) -> None:
    result = run("pack", "-", *arguments, stdin=PROBLEM)
    assert result.code == code
    assert problem in result.err


def test_a_bad_table_is_refused_with_its_place(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("id,lower,upper,size\nb1,0,3,four\n")
    result = run("pack", path)
    assert result.code == 3
    assert "bad.csv:2:8: `four` is not a number for `size`" in result.err


def test_a_wrong_packing_is_never_printed(
    run: Run, problem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solve, "height_of", lambda *_: 8)
    result = run("pack", problem)
    assert (result.code, result.out) == (4, b"")
    assert "a wrong packing" in result.err
