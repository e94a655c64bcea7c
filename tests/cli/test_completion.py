"""Shells complete commands and options, by the scripts we print."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hlomem.cli import main
from hlomem.cli.commands import COMMANDS

SHELLS = ("bash", "zsh", "fish")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_asks_hlomem_itself(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_HLOMEM_COMPLETE={shell}_complete" in script


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
    assert main(["completion"]) == 2
    assert "Choose from: bash, zsh, fish" in capsys.readouterr().err


def _completed(words: str) -> list[str]:
    asked = {
        "_HLOMEM_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    line = [sys.executable, "-m", "hlomem"]
    done = subprocess.run(line, env={**os.environ, **asked}, capture_output=True, check=True)
    return [line.split(",")[1] for line in done.stdout.decode().splitlines()]


def test_commands_are_completed() -> None:
    assert set(_completed("hlomem su")) == {name for name in COMMANDS if name.startswith("su")}


def test_options_of_a_command_are_completed() -> None:
    assert "--capacity" in _completed("hlomem summary --cap")
