"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from hlomem.base import atomic_files
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import CommandError, InputError


def test_makes_the_folder_and_writes_every_file(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    write_files(folder, {"x.txt": [b"one"], "y.txt": [b"two"]})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "x.txt": b"one",
        "y.txt": b"two",
    }


def test_existing_files_are_kept_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "y.txt").write_bytes(b"old")
    with pytest.raises(CommandError, match=r"y\.txt exists; give --force"):
        write_files(tmp_path, {"x.txt": [b"new"], "y.txt": [b"new"]})
    assert [path.name for path in tmp_path.iterdir()] == ["y.txt"]
    write_files(tmp_path, {"y.txt": [b"new"]}, force=True)
    assert (tmp_path / "y.txt").read_bytes() == b"new"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "x.txt").symlink_to(victim)
    write_files(tmp_path, {"x.txt": [b"new"]}, force=True)
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "x.txt").is_symlink()


@pytest.mark.parametrize("name", ["../x.txt", "/etc/x.txt", "a/b.txt", "", ".", "a\0b"])
def test_names_stay_inside_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommandError, match="is not the name of a file"):
        write_files(tmp_path / "out", {name: [b""]})


@pytest.mark.parametrize("failing", range(9))
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Whichever of eight calls fails: to open, write, close or move one of two files."""
    (tmp_path / "x.txt").write_bytes(b"old x")
    (tmp_path / "y.txt").write_bytes(b"old y")
    calls = iter(range(1000))

    def fail() -> None:
        if next(calls) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class Failing(io.FileIO):
        def write(self, data: object) -> int:
            fail()
            return super().write(data)  # type: ignore[arg-type]

        def close(self) -> None:
            if not self.closed:
                super().close()
                fail()

    def open_failing(path: str, mode: str) -> Failing:
        fail()
        return Failing(path, mode.replace("b", ""))

    replace = os.replace

    def replace_failing(path: str, target: str) -> None:
        fail()
        replace(path, target)

    is_refused = pytest.raises(InputError, match="No space left on device")
    with monkeypatch.context() as patch, is_refused if failing < 8 else nullcontext():
        patch.setattr(atomic_files, "open", open_failing, raising=False)
        patch.setattr(os, "replace", replace_failing)
        write_files(tmp_path, {"x.txt": [b"new x"], "y.txt": [b"new y"]}, force=True)
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found.keys() == {"x.txt", "y.txt"}
    assert found["x.txt"] in {b"old x", b"new x"}
    assert found["y.txt"] in {b"old y", b"new y"}


def test_a_file_that_turns_up_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arrives(_: str, target: str) -> None:
        Path(target).write_bytes(b"of somebody else")
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)

    monkeypatch.setattr(os, "link", arrives)
    with pytest.raises(CommandError, match=r"x\.txt exists; give --force"):
        write_files(tmp_path, {"x.txt": [b"new"]})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "x.txt": b"of somebody else"
    }


def test_a_file_system_without_links_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    write_files(tmp_path, {"x.txt": [b"new"]})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x.txt": b"new"}


_WRITES_FOREVER = """
import sys
from pathlib import Path
from hlomem.base import atomic_files
from hlomem.base.atomic_files import write_files
print(flush=True)
number = 0
while True:
    number += 1
    data = bytes([number % 256]) * 300_000
    write_files(Path(sys.argv[1]), {"x": [data], "y": [data]}, force=True)
"""


def test_a_killed_process_leaves_whole_files(tmp_path: Path) -> None:
    for delay in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITES_FOREVER, tmp_path], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.read(1)
        time.sleep(0.0015 * delay)
        process.kill()
        process.wait()
        process.stdout.close()
        for path in tmp_path.iterdir():
            if path.name in {"x", "y"}:
                data = path.read_bytes()
                assert data == data[:1] * 300_000
            else:
                assert path.name.startswith(".") and path.suffix == ".tmp"  # noqa: PT018
                path.unlink()


def test_files_get_the_usual_permissions(tmp_path: Path) -> None:
    write_files(tmp_path, {"x.txt": [b""]})
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "x.txt").stat().st_mode & 0o777 == 0o666 & ~umask


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize("make", [_pipe, _device], ids=["pipe", "device"])
@pytest.mark.parametrize("is_linked", [False, True], ids=["itself", "by a link"])
def test_a_device_is_written_to_and_not_replaced(
    tmp_path: Path, make: Callable[[Path], None], is_linked: bool
) -> None:
    make(tmp_path / "device")
    name = "device"
    if is_linked:
        name = "link"
        (tmp_path / name).symlink_to(tmp_path / "device")
    kind = stat.S_IFMT((tmp_path / "device").stat().st_mode)
    reader = os.open(tmp_path / "device", os.O_RDONLY | os.O_NONBLOCK)
    write_files(tmp_path, {name: [b"ab", b"c"]})
    assert os.read(reader, 10) == (b"abc" if kind == stat.S_IFIFO else b"")
    os.close(reader)
    assert stat.S_IFMT((tmp_path / "device").stat().st_mode) == kind
    assert (tmp_path / name).is_symlink() == is_linked
