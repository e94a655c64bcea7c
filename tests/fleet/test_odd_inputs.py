"""One odd file is a row with its error: the scan goes on, and starts nothing of what it reads."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hlomem.base.errors import InputError
from hlomem.fleet import ask, scan
from hlomem.fleet.archives import unpacked
from hlomem.fleet.reopen import opened_memory
from hlomem.fleet.storage import list_files
from tests.places import GOLDENS

pytest.importorskip("duckdb")
DUMP = GOLDENS / "pairs" / "batch_doubled" / "before"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one good dump."""
    shutil.copytree(DUMP, tmp_path / "dumps" / "z_good")
    return tmp_path / "dumps"


def errors_of(folder: Path, store: Path) -> list[str]:
    """The errors of a scan, twice the same, in which the good dump was read."""
    for run in ("first", "again"):
        scan([folder], store, run=run, workers=1)
        found = ask(store, f"SELECT status, error FROM modules WHERE run = '{run}'").fetchall()
        assert [row for row in found if row[0] == "ok"]
    return [str(error) for status, error in found if status != "ok"]


def test_nothing_in_the_scanned_folder_is_imported(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    for name in ("msgspec", "hlomem", "struct"):
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if p]; from hlomem.cli import main; main()"
    )
    line = [sys.executable, "-P", "-c", code, "scan", ".", "-o", str(tmp_path / "store")]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not mark.exists()


@pytest.mark.parametrize("where", ["file", "folder"])
def test_a_name_that_is_not_utf8(folder: Path, tmp_path: Path, where: str) -> None:
    odd = os.fsencode(folder) + b"/a_\xff"
    if where == "folder":
        shutil.copytree(DUMP, os.fsdecode(odd))
    else:
        Path(os.fsdecode(odd + b".hlo")).write_text("HloModule m\n")
    [error] = errors_of(folder, tmp_path / "store")
    assert "is not UTF-8" in error


def _encrypted(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m.hlo", "HloModule m\n")
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1  # the flag of encryption
    path.write_bytes(data)


def _of_unknown_method(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m.hlo", "HloModule m\n")
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(mark) + offset] = 93
    path.write_bytes(data)


def _tar_of(name: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tape:
        entry = tarfile.TarInfo(name)
        entry.size = 12
        tape.addfile(entry, io.BytesIO(b"HloModule m\n"))
    return made.getvalue()


def _with_a_bad_sparse_map(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tape:
        entry = tarfile.TarInfo("m.hlo")
        entry.size = 12
        entry.pax_headers = {"GNU.sparse.map": "1,x", "GNU.sparse.size": "12"}
        tape.addfile(entry, io.BytesIO(b"HloModule m\n"))


ARCHIVES: dict[str, Any] = {
    "encrypted.zip": _encrypted,
    "zstd.zip": _of_unknown_method,
    "long.tar": lambda path: path.write_bytes(_tar_of(f"{'x' * 300}.hlo")),
    "deep.tar": lambda path: path.write_bytes(_tar_of("y/" * 3000 + "m.hlo")),
    "odd.tar": lambda path: path.write_bytes(_tar_of("\udcff.hlo")),
    "sparse.tar": _with_a_bad_sparse_map,
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_cannot_be_unpacked(folder: Path, tmp_path: Path, name: str) -> None:
    ARCHIVES[name](folder / name)
    [error] = errors_of(folder, tmp_path / "store")
    assert name in error or "is not UTF-8" in error


@pytest.mark.parametrize("damage", ["checksum", "cut"])
def test_a_packed_archive_is_checked_to_its_end(tmp_path: Path, damage: str) -> None:
    data = bytearray(gzip.compress(_tar_of("m.hlo")))
    if damage == "checksum":
        data[-8] ^= 1
    path = tmp_path / "a.tar.gz"
    path.write_bytes(data if damage == "checksum" else data[:-8])
    [entry] = list_files(str(path))
    with pytest.raises(InputError, match="damaged archive"), unpacked(entry, 1 << 20):
        pass


def test_a_folder_that_may_be_listed_but_not_entered(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(DUMP, folder / "a_closed")
    is_file = Path.is_file

    def refuse(path: Path) -> bool:
        if path.parent.name == "a_closed":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refuse)
    [error] = errors_of(folder, tmp_path / "store")
    assert "a_closed: Permission denied" in error


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(folder: Path, tmp_path: Path) -> None:
    with (folder / "large.hlo").open("wb") as file:
        file.truncate(5 << 30)  # takes no room on the disk
    [error] = errors_of(folder, tmp_path / "store")
    assert "limit" in error
    assert "MemoryError" not in error


@pytest.mark.parametrize(
    "source", ["http://127.0.0.1:9/x.hlo", "ftp://127.0.0.1/x.hlo", "s3://bucket/x.hlo"]
)
def test_what_a_store_says_is_not_connected_to(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hlomem.fleet.storage._file_system", lambda _: pytest.fail("connected"))
    row = {"source": source, "id": "x-0", "key": "", "recipe": ""}
    with pytest.raises(InputError, match="--fetch"), opened_memory(row, fetch="s3://other"):
        pass
    for fetch in ("s3://buck", "http://127.0.0.1:9.evil"):
        with pytest.raises(InputError, match="--fetch"), opened_memory(row, fetch=fetch):
            pass
