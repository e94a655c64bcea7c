"""The command line as a whole: help, versions, exit codes."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from hlomem import __version__
from hlomem.cli import COMMANDS, main
from tests.cli.conftest import Run


def test_help_and_version(run: Run) -> None:
    assert run("--version").out.decode() == f"hlomem {__version__}\n"
    text = run("--help").out.decode()
    assert all(f"  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_begins_its_help_with_the_line_in_the_list(name: str, run: Run) -> None:
    command = import_module(f"hlomem.cli.{name}").command
    assert isinstance(command, click.Command)
    assert (command.help or "").split("\n")[0] == COMMANDS[name]
    assert run(name, "--help").code == 0


def test_wrong_usage_exits_2(run: Run) -> None:
    for arguments in (["nonsense"], ["fmt"], ["show", "--nonsense", "x"]):
        assert run(*arguments).code == 2


def test_unreadable_input_exits_3_and_says_why(run: Run, tmp_path: Path) -> None:
    missing = run("show", tmp_path / "nothing.txt")
    assert missing.code == 3
    assert "nothing.txt: No such file or directory" in missing.err
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert run("show", empty).code == 3
    assert run("show", tmp_path).code == 3


def test_a_bug_of_ours_exits_4_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("what\x1b now")

    monkeypatch.setattr("hlomem.cli.show.load_any", broken)
    assert main(["show", "x.txt"]) == 4
    shown = capsys.readouterr().err
    assert "this is a bug of hlomem" in shown
    assert "ZeroDivisionError: what\\x1b now" in shown
    assert "Traceback" not in shown


def test_a_closed_pipe_is_quiet(goldens: Path) -> None:
    seeds = sorted((goldens / "seeds").glob("*.txt")) * 200
    process = subprocess.Popen(
        [sys.executable, "-m", "hlomem", "fmt", *map(str, seeds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_a_process_that_ends_at_once_has_written_everything(goldens: Path, run: Run) -> None:
    module = str(goldens / "xla" / "jaxlib-0.12.0.1" / "cpu" / "m_overlap" / "module.hlo")
    command = [sys.executable, "-m", "hlomem", "plan", module, "--timings"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == run("plan", module).out
    assert done.stderr.endswith(b"ms of CPU time\n")


def test_help_needs_nothing_heavy() -> None:
    code = "import sys, hlomem.cli; hlomem.cli.main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.rsplit("\n", 2)[1]
    for heavy in ("rich", "msgspec", "numpy", "jax", "google.protobuf"):
        assert f"'{heavy}'" not in loaded, heavy
