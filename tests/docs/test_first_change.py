"""The first change that docs/contributing.md tells: it applies, and its test fails before it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.places import ROOT
from tools.documents import blocks

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = "checked by tests/docs/test_first_change.py"


def _apply(block: str, home: Path, *, back: bool = False) -> None:
    """Makes the changes of a block in a copy of the project, or takes them back."""
    old, new = (" +", " -") if back else (" -", " +")
    for part in re.split(r"^\+\+\+ ", block, flags=re.MULTILINE)[1:]:
        name, _, changes = part.partition("\n")
        path = home / name
        text = path.read_text(encoding="utf-8")
        for change in changes.split("@@\n"):
            lines = change.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in old)
            after = "".join(line[1:] for line in lines if line[0] in new)
            assert text.count(before) == 1, f"{name} does not have this once:\n{before}"
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")


def _run(home: Path, test: str) -> str:
    """What a test of the copy says where it fails; empty if it does not."""
    paths = (home / "src", home / "tests/report/data", ROOT)
    done = subprocess.run(
        [sys.executable, "-c", f"import test_padding; test_padding.{test}()"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stderr


def test_the_first_change_makes_its_test_green(tmp_path: Path) -> None:
    first, second = [block.text for block in blocks() if block.marker == HOLDER]
    shutil.copytree(ROOT / "src", tmp_path / "src")
    (tmp_path / "tests/report/data").mkdir(parents=True)
    tests = ROOT / "tests/report/data/test_padding.py"
    shutil.copy(tests, tmp_path / "tests/report/data")
    [test] = re.findall(r"^\+def (test_\w+)", first, re.MULTILINE)
    if test in tests.read_text(encoding="utf-8"):  # where the reader has made the change
        for block in (first, second):
            _apply(block, tmp_path, back=True)
    _apply(first, tmp_path)
    assert "has no attribute 'shapes_at_peak'" in _run(tmp_path, test)
    _apply(second, tmp_path)
    assert _run(tmp_path, test) == ""
