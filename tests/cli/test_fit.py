"""`hlomem fit` from outside."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from hlomem.jax import known_plans
from tests.cli.conftest import Run
from tests.jax.test_fitting import FakeCompiler


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    """In place of the child."""
    made = FakeCompiler()
    monkeypatch.setattr(known_plans, "plan_unless_known", made)
    return made


def _options(tmp_path: Path, *more: Any) -> list[str]:
    return ["m:f", "--capacity", "1GiB", "--cache", str(tmp_path / "plans"), *map(str, more)]


@pytest.mark.usefixtures("compiler")
def test_a_table_a_page_and_json_say_the_same(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "fit.html"
    rows = ("--over", "batch", "--over", "remat=none,full", "--set", "donate=True")
    result = run("fit", *_options(tmp_path, *rows, "--html", page))
    screen = result.out.decode()
    assert result.code == 0
    assert screen.startswith("m:f  cpu  donate=True\nlargest batch in 1.00 GiB\n")
    assert max(map(len, screen.splitlines())) <= 80
    assert "<svg " in page.read_text()
    content = json.loads(run("fit", *_options(tmp_path, *rows, "--json")).out)
    assert [row["largest"] for row in content["rows"]] == [92, 308]
    assert (content["kind"], content["over"], content["step"]) == ("fit", "batch", 1)
    assert all(str(row["largest"]) in screen for row in content["rows"])


@pytest.mark.usefixtures("compiler")
def test_csv_has_a_line_for_each_row(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "fit.csv"
    rows = ("--max", "batch", "--over", "remat=none,full", "--over", "bad=0,1")
    result = run("fit", *_options(tmp_path, *rows, "--csv", file))
    assert result.code == 1
    good, *_, bad = csv.DictReader(io.StringIO(file.read_text()))
    assert (good["remat"], good["batch"], good["next"], good["fits"]) == (
        "none",
        "92",
        "93",
        "True",
    )
    assert good["needs"] == good["needs: activations"] == str(1020 << 20)
    assert (bad["batch"], bad["problem"]) == ("0", "`m:f` raised: ValueError: bad")


@pytest.mark.usefixtures("compiler")
def test_a_check_is_one_line_for_each_row(run: Run, tmp_path: Path) -> None:
    rows = ("--check", "--set", "batch=100", "--over", "remat=none,full")
    result = run("fit", *_options(tmp_path, *rows))
    assert result.code == 1
    assert result.out.decode().splitlines() == [
        "does not fit: cpu remat=none needs 1.07 GiB of 1.00 GiB, 76.00 MiB too much",
        "fits: cpu remat=full needs 400.0 MiB of 1.00 GiB",
    ]
    assert run("fit", *_options(tmp_path, *rows[:3], "--set", "remat=full")).code == 0
    most = run("fit", *_options(tmp_path, "--check", "--max", "batch"))
    assert most.out == b"fits: cpu batch=92 needs 1020.0 MiB of 1.00 GiB\n"


@pytest.mark.usefixtures("compiler")
def test_a_program_that_never_fits_is_a_finding(run: Run, tmp_path: Path) -> None:
    result = run("fit", "m:f", "--over", "batch", "--capacity", "50MiB", "--cache", tmp_path)
    assert result.code == 1
    assert " none " in result.out.decode()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--over", "batch", "--over", "length"), "2 settings to increase"),
        (("--over", "batch", "--max", "length"), "2 settings to increase: give one"),
        (("--max", "batch", "--price", "v5e"), "`v5e` is no price of a chip, as in v5e=1.2"),
        (("--max", "batch", "--over", "mesh=auto"), "give them by --axes"),
        (("--over", "batch", "--over", "a="), "`a=` makes no rows"),
        (("--over", "batch", "--over", "a=1", "--over", "a=2"), "`a=2` makes no rows"),
        (("--over", "batch", "--set", "batch=3"), "`batch` is given twice"),
        (("--over", "batch", "--step", "0"), "--step"),
        (("--over", "batch", "--html", __file__), "exists; give --force to overwrite it"),
    ],
)
def test_wrong_usage_is_said(run: Run, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    result = run("fit", *_options(tmp_path, *options))
    assert (result.code, result.out) == (2, b"")
    assert said in result.err
