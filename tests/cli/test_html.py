"""`hlomem html`: one file, written where asked."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from hlomem.cli import main
from tests.places import GOLDENS

SEED = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"


def test_it_writes_one_file_and_keeps_an_old_one(tmp_path: Path) -> None:
    report = tmp_path / "new" / "report.html"
    assert main(["html", str(SEED), "-o", str(report)]) == 0
    assert report.read_text().startswith("<!doctype html>")
    assert [path.name for path in report.parent.iterdir()] == ["report.html"]
    assert main(["html", str(SEED), "-o", str(report)]) == 2
    assert main(["html", str(SEED), "-o", str(report), "--force"]) == 0


def test_it_opens_the_browser_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def launch(path: str) -> int:
        opened.append(path)
        return len(opened) - 1

    monkeypatch.setattr(click, "launch", launch)
    report = tmp_path / "report.html"
    assert main(["html", str(SEED), "-o", str(report), "--open"]) == 0
    assert opened == [str(report)]
    assert main(["html", str(SEED), "-o", str(report), "--open", "--force"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nowhere.txt"], 3),
        ([str(SEED), "--capacity", "lots"], 2),
        ([str(SEED), str(SEED), "--hlo", "module.txt"], 2),
        ([str(SEED), "--run", "nightly"], 2),
        ([], 2),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["html", *arguments, "-o", str(tmp_path / "report.html")]) == code
    assert capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
