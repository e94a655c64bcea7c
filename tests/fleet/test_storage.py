"""Files behind fsspec are listed, read and written as those of this machine are."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hlomem.base.errors import CommandError, InputError
from hlomem.fleet import ask, scan, storage
from hlomem.fleet import store as fleet_store
from hlomem.fleet.finding import find_units, unit_at
from tests.places import GOLDENS

pytest.importorskip("fsspec")


@pytest.fixture(params=["", "local://"], ids=["this machine", "fsspec"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder, by its path and as an address of the same files."""
    return f"{request.param}{tmp_path}"


def test_what_is_written_is_found_read_and_removed(root: str) -> None:
    path = storage.join(root, "a", "b.txt")
    (Path(root.removeprefix("local://")) / "a").mkdir()
    assert not storage.exists(path)
    storage.write_bytes(path, [b"one", b"two"])
    assert storage.exists(path)
    assert storage.read_bytes(path) == b"onetwo"
    assert storage.read_bytes(path, 4) == b"onet"
    [entry] = storage.list_files(root)
    assert (entry.path, entry.name, entry.size) == (path, "b.txt", 6)
    assert list(storage.list_files(path)) == storage.list_beside(path) == [entry]
    storage.write_bytes(path, [b"other"])
    [changed] = storage.list_files(root)
    assert changed.stamp != entry.stamp
    storage.remove(path)
    storage.remove(path)  # gone already
    assert not storage.exists(path)


def test_a_folder_with_a_mark_is_passed_over(root: str) -> None:
    local = Path(root.removeprefix("local://"))
    for name in ("kept/x", "store/MARK", "store/deeper/y"):
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_text(name)
    assert [entry.name for entry in storage.list_files(root, but="MARK")] == ["x"]


def test_what_is_not_there_is_said_with_its_place(root: str) -> None:
    path = storage.join(root, "nothing")
    for question in (storage.read_bytes, lambda missing: list(storage.list_files(missing))):
        with pytest.raises(InputError, match="nothing"):
            question(path)


def test_an_address_nobody_knows_is_a_wrong_command() -> None:
    questions: tuple[Callable[[str], object], ...] = (storage.exists, storage.read_bytes)
    for question in questions:
        with pytest.raises(CommandError, match="nobody://x"):
            question("nobody://x")


def _close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closes a folder, to root, too."""
    scandir = os.scandir

    def scan_others(path: str) -> Any:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan_others)


def test_a_folder_that_cannot_be_read_is_told_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    _close(closed, monkeypatch)
    told: list[str] = []
    assert (
        list(storage.list_files(str(tmp_path), refused=lambda where, _: told.append(where))) == []
    )
    assert told == [str(closed)]
    [problem] = find_units(str(tmp_path), lambda _: False, 1 << 20)
    assert str(problem) == f"{closed}: Permission denied"
    for path in (tmp_path, closed):
        with pytest.raises(InputError, match="closed: Permission denied"):
            list(storage.list_files(str(path)))


def test_a_link_to_nowhere_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert list(storage.list_files(str(tmp_path))) == []


def test_a_file_that_is_not_behind_an_address_is_said(tmp_path: Path) -> None:
    (tmp_path / "beside.txt").touch()
    with pytest.raises(InputError, match=r"none\.txt: no such file"):
        unit_at(f"local://{tmp_path}/none.txt")
    with pytest.raises(InputError, match="no/such/folder"):
        storage.write_bytes(f"local://{tmp_path}/no/such/folder.txt", [b""])


def test_dumps_and_archives_behind_an_address_are_scanned_once(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    dumps, pair = tmp_path / "dumps", GOLDENS / "pairs" / "batch_doubled"
    shutil.copytree(pair / "before", dumps / "before")
    with tarfile.open(dumps / "more.tar.gz", "w:gz") as tape:
        tape.add(pair / "after", "after")
    source, store = f"local://{dumps}", f"memory://{tmp_path.name}/store"
    done = scan([source], store, run="a", workers=1)
    assert (done.modules, done.errors) == (2, 0)
    again = scan([source], store, run="a", workers=1)
    assert (again.read, again.skipped) == (0, 2)
    other = scan([source], store, run="b", workers=1)
    assert (other.read, other.carried) == (0, 2)
    rows = ask(store, "SELECT run, count(*) FROM modules GROUP BY run ORDER BY run").fetchall()
    assert rows == [("a", 2), ("b", 2)]
    copies = [Path(folder.name) for folder in fleet_store._copies.values()]
    assert all(folder.is_dir() for folder in copies)
    fleet_store.forget_copies()
    assert copies
    assert not any(folder.exists() for folder in copies)
