"""Archives are unpacked within limits, and never outside of their folder."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from hlomem.base.errors import InputError
from hlomem.fleet.archives import unpacked
from hlomem.fleet.finding import UnitError, begins, find_units
from hlomem.fleet.storage import FileEntry, list_files
from hlomem.fleet.units import Unit

LIMIT = 1 << 20
MODULE = b"HloModule m, is_scheduled=true\n\nENTRY %e {\n  ROOT %a = f32[8]{0} parameter(0)\n}\n"


def _tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tape:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tape.addfile(entry, io.BytesIO(content))


def _zip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)


@pytest.mark.parametrize(("pack", "name"), [(_tar, "a.tar.gz"), (_zip, "a.zip")])
def test_files_are_unpacked_below_the_folder_and_nowhere_else(
    tmp_path: Path, pack: object, name: str
) -> None:
    assert callable(pack)
    path = tmp_path / name
    pack(path, {"d/x.txt": b"one", "../out.txt": b"two", "/abs.txt": b"three"})
    [entry] = list_files(str(path))
    with unpacked(entry, LIMIT) as (folder, files):
        found = {Path(file.path).relative_to(folder).as_posix(): file for file in files}
        assert found["d/x.txt"].stamp == entry.stamp
        assert Path(found["d/x.txt"].path).read_bytes() == b"one"
        assert not (tmp_path / "out.txt").exists()
        assert all(Path(file.path).is_relative_to(folder) for file in files)
    assert not Path(folder).exists()


def _units(path: Path, limit: int = LIMIT) -> list[Unit | UnitError]:
    return list(find_units(str(path), lambda _: False, limit))


def test_a_program_in_an_archive_is_a_unit_with_its_bytes(tmp_path: Path) -> None:
    _tar(tmp_path / "a.tar.gz", {"d/m.after_optimizations.txt": MODULE})
    [unit, archive] = _units(tmp_path)
    assert isinstance(unit, Unit)
    assert unit.data == (MODULE,)
    assert unit.source == f"{tmp_path}/a.tar.gz!/d/m.after_optimizations.txt"
    assert isinstance(archive, Unit)
    assert archive.kind == "archive"
    [alone] = find_units(str(tmp_path), lambda found: found.kind == "archive", LIMIT)
    assert isinstance(alone, Unit)
    assert alone.kind == "archive"


def test_a_member_beyond_the_limit_is_refused_with_its_name(tmp_path: Path) -> None:
    _tar(tmp_path / "a.tar.gz", {"big.txt": bytes(2048)})
    [problem] = _units(tmp_path, limit=1024)
    assert isinstance(problem, UnitError)
    assert "`big.txt` is beyond the limit of inputs" in str(problem)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_a_damaged_archive_is_an_error_of_its_own(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8bthis is none")
    [problem] = _units(tmp_path)
    assert isinstance(problem, UnitError)
    assert f"{name}: damaged archive: " in str(problem)


def test_an_archive_that_is_gone_is_said(tmp_path: Path) -> None:
    gone = FileEntry(str(tmp_path / "gone.tar"), 3, "")
    with pytest.raises(InputError, match=r"gone\.tar: No such file"), unpacked(gone, LIMIT):
        pass


def test_a_path_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        _units(tmp_path / "nothing")


def test_a_packed_file_behind_an_address_is_told_by_what_is_in_it(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    path = tmp_path / "dump.txt.gz"
    path.write_bytes(gzip.compress(b"BufferAssignment:\n" + bytes(9000)))
    for place in (str(path), f"local://{path}"):
        assert begins(FileEntry(place, path.stat().st_size, "")).startswith(b"BufferAssignment:")
    path.write_bytes(b"\x1f\x8bdamaged")
    assert begins(FileEntry(f"local://{path}", 9, "")) == b""
