"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import pytest

from hlomem.errors import CommandError, InputError
from hlomem.outputs import write_files


def test_makes_the_folder_and_writes_every_file(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    write_files(folder, {"x.txt": b"one", "y.txt": b"two"})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "x.txt": b"one",
        "y.txt": b"two",
    }


def test_existing_files_are_kept_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "y.txt").write_bytes(b"old")
    with pytest.raises(CommandError, match=r"y\.txt exists; give --force"):
        write_files(tmp_path, {"x.txt": b"new", "y.txt": b"new"})
    assert [path.name for path in tmp_path.iterdir()] == ["y.txt"]
    write_files(tmp_path, {"y.txt": b"new"}, force=True)
    assert (tmp_path / "y.txt").read_bytes() == b"new"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "x.txt").symlink_to(victim)
    write_files(tmp_path, {"x.txt": b"new"}, force=True)
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "x.txt").is_symlink()


@pytest.mark.parametrize("name", ["../x.txt", "/etc/x.txt", "a/b.txt", "", "."])
def test_names_stay_inside_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommandError, match="is not the name of a file"):
        write_files(tmp_path / "out", {name: b""})


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.txt").write_bytes(b"old")
    opened = []
    open_path = Path.open

    def full_disk(path: Path, mode: str) -> IO[Any]:
        opened.append(path)
        file = open_path(path, mode)
        if len(opened) == 2:
            file.close()
            raise OSError(28, "No space left on device")
        return file

    monkeypatch.setattr(Path, "open", full_disk)
    with pytest.raises(InputError, match="No space left on device"):
        write_files(tmp_path, {"x.txt": b"new", "y.txt": b"new"}, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]
    assert (tmp_path / "x.txt").read_bytes() == b"old"


def test_files_get_the_usual_permissions(tmp_path: Path) -> None:
    write_files(tmp_path, {"x.txt": b""})
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "x.txt").stat().st_mode & 0o777 == 0o666 & ~umask
