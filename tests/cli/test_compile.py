"""`hlomem compile` from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.places import ROOT

FACTORY = f"{ROOT / 'tests' / 'jax' / 'factories.py'}:step"
SMALL = ("--set", "width=128", "--set", "batch=2", "--set", "remat=full")


def test_a_program_is_compiled_shown_and_kept(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
    page, dump = tmp_path / "page.html", tmp_path / "dump"
    result = run("compile", FACTORY, *SMALL, "--html", page, "-o", dump, "--capacity", "64KiB")
    screen = result.out.decode()
    assert result.code == 1  # it needs more
    assert screen.startswith("train_step  cpu\n\nNeeds ")
    assert "over by" in screen
    assert "factories.py:" in screen
    assert "fully compiled" in screen
    assert max(map(len, screen.splitlines())) <= 80
    assert page.read_text().startswith("<!")
    summary = json.loads(run("summary", dump, "--module", "train_step", "--json").out)
    content = json.loads(run("compile", FACTORY, *SMALL, "--json").out)
    assert (content["kind"], content["target"], content["fits"]) == ("compile", "cpu", True)
    assert content["settings"] == {"width": 128, "batch": 2, "remat": "full"}
    assert content["summary"]["space"] == summary["space"]
    assert "['layers']" in content["facts"]["results"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--target", "tpu-v9"), 2, "no target `tpu-v9`: known are"),
        (("--set", "batch"), 2, "`batch` is not NAME=VALUE"),
        (("--set", "a=1", "--set", "a=2"), 2, "`a` is set twice"),
        (("--set", "a={}"), 2, "`{}` is not a valid setting"),
        (("--timeout", "0"), 2, "--timeout"),
        (("--capacity", "much"), 2, "not a capacity"),
        (("-o", str(ROOT)), 2, "has files; give --force"),
        (("--html", str(ROOT / "README.md")), 2, "exists; give --force"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_started(
    run: Run, options: tuple[str, ...], code: int, said: str
) -> None:
    result = run("compile", "m:f", *options)
    assert (result.code, result.out) == (code, b"")
    assert said in result.err


def test_a_missing_compiler_is_named_with_the_line_that_installs_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hlomem.jax.target_kinds._is_there", lambda _: False)
    monkeypatch.setattr("hlomem.jax.target_kinds.version", lambda _: "0.12.0.1")
    result = run("compile", "m:f", "--target", "tpu-v5e:2x2")
    assert result.code == 3
    assert result.err == (
        "error: cannot compile for tpu-v5e:2x2: libtpu is not installed\n  pip install libtpu\n"
    )


def test_help_needs_no_jax() -> None:
    code = (
        "import sys; from hlomem.cli import main; main(['fit', '-h']); print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nFalse\n")


@pytest.mark.parametrize(
    ("option", "name", "says"),
    [
        ("-o", "file", "is not a folder"),
        ("-o", "", "has files; give --force to add to them"),
        ("--html", "file", "exists; give --force to overwrite it"),
    ],
)
def test_a_place_that_is_taken_is_refused_before_anything_is_compiled(
    run: Run, tmp_path: Path, option: str, name: str, says: str
) -> None:
    (tmp_path / "file").write_text("mine")
    result = run("compile", "nobody.py:step", "--target", "cpu", option, tmp_path / name)
    assert result.code == 2
    assert says in result.err
