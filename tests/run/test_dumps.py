"""The folder of dumps: bounded, tidy, and gone when all is done, or when we are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from hlomem.base.errors import CommandError, InputError
from hlomem.run.dumps import DumpFolder

LARGE = 1 << 30


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made, so that what is left of them is seen."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def _write_program(folder: Path, number: int, size: int) -> None:
    stem = folder / f"module_{number:04}.jit_p{number}.cpu_after_optimizations"
    text = f"BufferAssignment:\nallocation 0: size {size}, preallocated-temp:\n" + "#" * 1000
    Path(f"{stem}-buffer-assignment.txt").write_text(text)
    Path(f"{stem}.txt").write_text("HloModule x\n")
    os.utime(f"{stem}-buffer-assignment.txt", (number, number))


def test_files_that_are_not_about_memory_are_removed_and_the_folder_in_the_end(
    temporary: Path,
) -> None:
    with DumpFolder(None, LARGE) as folder:
        _write_program(folder.path, 0, 64)
        (folder.path / "module_0000.jit_p0.ir-with-opt.ll").write_text("...")
        (folder.path / "module_0000.jit_p0.before_optimizations.txt").write_text("...")
        (folder.path / "kernels").mkdir()
        folder.settle()
        assert sorted(path.name for path in folder.path.iterdir()) == [
            "module_0000.jit_p0.cpu_after_optimizations-buffer-assignment.txt",
            "module_0000.jit_p0.cpu_after_optimizations.txt",
        ]
    assert list(temporary.iterdir()) == []


def test_where_there_is_no_room_the_smallest_programs_go_but_not_the_latest() -> None:
    with DumpFolder(None, 30_000) as folder:
        for number in range(40):
            _write_program(folder.path, number, 10_000 if number == 5 else number)
        folder.settle()
        left = sorted(folder.path.glob("*-buffer-assignment.txt"))
        numbers = [int(path.name[7:11]) for path in left]
        assert sum(path.stat().st_size for path in folder.path.iterdir()) <= 30_000
        assert 5 in numbers
        assert set(range(24, 40)) <= set(numbers)
        assert 0 not in numbers
        assert folder.dropped == 40 - len(numbers)


def test_an_exception_removes_the_folder_too(temporary: Path) -> None:
    def fail() -> None:
        with DumpFolder(None, LARGE) as folder:
            _write_program(folder.path, 0, 64)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(temporary.iterdir()) == []


def test_a_folder_to_keep_must_be_empty_and_stays(tmp_path: Path) -> None:
    kept = tmp_path / "deep" / "dumps"
    with DumpFolder(kept, LARGE) as folder:
        _write_program(folder.path, 0, 64)
    assert len(list(kept.iterdir())) == 2
    with pytest.raises(CommandError, match="is not empty; give a new folder"):
        DumpFolder(kept, LARGE)
    with DumpFolder(tmp_path / "unused", LARGE):
        pass
    assert not (tmp_path / "unused").exists()


def test_no_place_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        DumpFolder(tmp_path / "file" / "dumps", LARGE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(InputError, match="no temporary folder for XLA's dumps"):
        DumpFolder(None, LARGE)


KILLED = """
import subprocess, sys, tempfile, time
from hlomem.run.dumps import DumpFolder
tempfile.tempdir = sys.argv[1]
with DumpFolder(None, 1 << 30) as folder:
    (folder.path / "x-buffer-assignment.txt").write_text("BufferAssignment:")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"], pass_fds=[folder.alive])
    print("ready", flush=True)
    time.sleep(60)
"""


def test_when_we_are_killed_the_folder_goes_with_the_command(temporary: Path) -> None:
    line = [sys.executable, "-c", KILLED, str(temporary)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(list(temporary.iterdir())) == 1, "the command still writes to it"
    deadline = time.monotonic() + 20
    while list(temporary.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(temporary.iterdir()) == []
