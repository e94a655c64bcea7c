"""Profiles opened by pprof itself, where Go is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hlomem.cli import main
from tests.places import ROOT

GO = shutil.which("go")


@pytest.mark.skipif(GO is None, reason="needs Go, which brings pprof")
def test_pprof_shows_lines_and_the_difference_of_two_plans(tmp_path: Path) -> None:
    for name in ("before", "after"):
        out = str(tmp_path / f"{name}.pb.gz")
        assert main(["export", str(ROOT / "examples/oom" / name), "--to", "pprof", "-o", out]) == 0

    def top(*words: str) -> str:
        line = [str(GO), "tool", "pprof", "-top", "-unit=B", *words]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "17330864128B 67.55% 67.55%" in top("before.pb.gz")
    assert "25658202624B total" in top("before.pb.gz")
    assert "-17330864128B" in top("-diff_base", "before.pb.gz", "after.pb.gz")
