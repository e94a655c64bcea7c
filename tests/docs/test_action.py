"""The GitHub Action: its script, run in a repository with a change that needs more memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from tests.places import ROOT

STEP = """import jax, jax.numpy as jnp

def make(size: int = 64):
    x = jax.ShapeDtypeStruct((SIZE, size), "float32")
    return jax.jit(lambda x: jnp.cumsum(x, 0) @ x.T), (x,)
"""


def test_the_action_comments_what_changed(tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    script = action["runs"]["steps"][-1]["run"]
    assert set(action["runs"]["steps"][-1]["env"]) >= {"FACTORY", "TARGET", "SETTINGS", "BASE"}
    repository, commands = tmp_path / "repository", tmp_path / "bin"
    repository.mkdir()
    commands.mkdir()
    _write_command(commands / "gh", f'cp "$5" {tmp_path}/said.md; echo "$@" > {tmp_path}/words\n')
    _write_command(commands / "hlomem", f'exec {sys.executable} -m hlomem "$@"\n')
    base, _ = (_commit(repository, size) for size in (256, 512))
    environment = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "JAX_PLATFORMS": "cpu",
        "FACTORY": "step.py:make",
        "TARGET": "cpu",
        "SETTINGS": "size=128",
        "FAIL_ON": "+1%",
        "BASE": base,
        "COMMENT": "true",
        "NUMBER": "7",
    }
    done = subprocess.run(["bash", "-c", script], cwd=repository, env=environment, check=False)
    assert done.returncode == 1
    assert (tmp_path / "words").read_text().startswith("pr comment 7 --body-file")
    said = (tmp_path / "said.md").read_text()
    assert said == (tmp_path / "summary.md").read_text()
    assert said.startswith("**Memory of `step.py:make` on cpu**\n\n```text\n")
    assert "256 became 512" in said


def _write_command(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)


def _commit(repository: Path, size: int) -> str:
    (repository / "step.py").write_text(STEP.replace("SIZE", str(size)))
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", str(size)]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    head = ["git", "rev-parse", "HEAD"]
    return subprocess.run(
        head, cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()
