"""`hlomem run` around commands that write what XLA writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hlomem.cli import main
from tests.places import ROOT

BEFORE = ROOT / "examples" / "oom" / "before"
ERROR = ROOT / "examples" / "oom" / "error.txt"
TOGETHER = (
    "must fit together: 23.90 GiB while train_step runs, plus 9 B of constants of the others while"
    " loaded"
)
COMPILE = f"""
import os, re, shutil, sys
from pathlib import Path
folder = re.search(r"--xla_dump_to=(\\S+)", os.environ["XLA_FLAGS"])[1]
Path(folder).mkdir(exist_ok=True)
for path in Path({str(BEFORE)!r}).iterdir():
    shutil.copyfile(path, Path(folder, path.name))
text = "BufferAssignment:\\nallocation 0: size 9, page 0, constant:\\n"
Path(folder, "module_0001.jit_init.cpu_after_optimizations-buffer-assignment.txt").write_text(text)
"""
FAIL = COMPILE + f"sys.stderr.write(open({str(ERROR)!r}).read()); sys.exit(1)"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made; the command runs beside it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    return folder


def _run(code: str, *options: str) -> int:
    return main(["run", *options, "--", sys.executable, "-c", code])


def test_the_largest_programs_are_listed_and_the_page_is_written(
    tmp_path: Path, temporary: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _run(COMPILE + "print('done')") == 0
    out, err = capfd.readouterr()
    assert out == "done\n"
    assert err.splitlines() == [
        "hlomem: 2 programs compiled, by what each reserves",
        "   23.90 GiB  train_step",
        "         9 B  init",
        TOGETHER,
        f"page of train_step: {tmp_path / 'hlomem-run.html'}",
    ]
    assert "train_step" in (tmp_path / "hlomem-run.html").read_text()
    assert list(temporary.iterdir()) == []


def test_small_programs_are_one_row(capfd: pytest.CaptureFixture[str]) -> None:
    again = "".join(
        f"\nPath(folder, 'module_000{n}.jit_init{n}.cpu_after_optimizations-buffer-assignment.txt')"
        ".write_text(text)"
        for n in (2, 3, 4)
    )
    assert _run(COMPILE + again) == 0
    assert capfd.readouterr().err.splitlines()[1:3] == [
        "   23.90 GiB  train_step",
        "        36 B  in 4 smaller",
    ]


def test_an_error_is_explained_to_the_line_and_the_exit_code_is_the_commands(
    tmp_path: Path, temporary: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hlomem-run.html").write_text("of an earlier run")
    assert _run(FAIL) == 1
    lines = capfd.readouterr().err.splitlines()
    assert "RESOURCE_EXHAUSTED" in lines[0]
    assert "  named by the error" in lines
    assert lines[-1].startswith("  look at /tmp/prog/train.py:8: 16.14 GiB, 67.5% of the peak")
    assert "train_step" in (tmp_path / "hlomem-run.html").read_text()
    assert list(temporary.iterdir()) == []


def test_dumps_are_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    assert _run(COMPILE, "-o", "dumps") == 0
    names = [path.name for path in (tmp_path / "dumps").iterdir()]
    assert "report.html" in names
    assert sum(name.endswith("-buffer-assignment.txt") for name in names) == 2
    assert not (tmp_path / "hlomem-run.html").exists()
    assert _run(COMPILE, "-o", "dumps") == 2


def test_a_folder_of_the_users_own_is_read_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    old = own / "module_0009.jit_old.cpu_after_optimizations-buffer-assignment.txt"
    old.write_text("BufferAssignment:\nallocation 0: size 99, preallocated-temp:\n")
    os.utime(old, (1, 1))
    (own / "notes.txt").write_text("mine")
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={own}")
    assert _run(COMPILE, "--no-page") == 0
    err = capfd.readouterr().err
    assert "2 programs compiled" in err
    assert "page" not in err
    assert old.exists()
    assert (own / "notes.txt").read_text() == "mine"
    assert _run(COMPILE, "-o", "dumps") == 2
    assert "omit -o" in capfd.readouterr().err


def test_a_command_that_compiles_nothing_is_told_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert _run("raise SystemExit(5)") == 5
    assert "XLA wrote no dump" in capfd.readouterr().err


def test_what_cannot_be_run_is_one_clear_error_and_leaves_nothing(
    tmp_path: Path, temporary: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "-o", "dumps", "--", "no-such-command"]) == 127
    assert capfd.readouterr().err == "error: no-such-command: command not found\n"
    assert main(["run"]) == 2
    assert main(["run", "--max-disk", "much", "--", "true"]) == 2
    assert main(["run", "--no-page", "--page", "page.html", "--", "true"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]
    assert list(temporary.iterdir()) == []


def test_a_command_that_hangs_is_ended_by_a_signal_and_leaves_nothing(temporary: Path) -> None:
    code = "import time; print('ready', flush=True); time.sleep(60)"
    line = [sys.executable, "-m", "hlomem", "run", "--", sys.executable, "-c", code]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(list(temporary.iterdir())) == 1
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    assert list(temporary.iterdir()) == []


def test_a_page_that_cannot_be_written_changes_no_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert _run(COMPILE, "--page", "file/page.html") == 0
    assert "no page: " in capfd.readouterr().err


def test_memory_that_no_program_asked_for_is_said_to_be_nobodys(
    capfd: pytest.CaptureFixture[str],
) -> None:
    message = "RESOURCE_EXHAUSTED: Out of memory allocating 77 bytes."
    assert _run(COMPILE + f"sys.exit({message!r})") == 1
    assert "none of the 2 programs seen requests as much" in capfd.readouterr().err
