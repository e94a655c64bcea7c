"""A program of a store is opened again where it lies, unless it has changed since."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hlomem.base.errors import InputError
from hlomem.fleet import scan
from hlomem.fleet.asking import LockedTables
from hlomem.fleet.reopen import opened_memory
from tests.places import GOLDENS

pytest.importorskip("duckdb")
BEFORE = GOLDENS / "pairs" / "batch_doubled" / "before"
QUERY = (
    "SELECT m.source, m.id, m.key, m.needs, u.recipe FROM modules m JOIN units u ON m.unit = u.unit"
)


def _scanned(folder: Path, store: Path) -> dict[str, Any]:
    """The only row of a folder's store."""
    scan([folder], store, run="a", workers=1)
    [row] = LockedTables(str(store)).rows(QUERY)
    return dict(row)


@pytest.mark.parametrize("is_packed", [False, True], ids=["folder", "archive"])
def test_the_memory_is_that_of_the_row(tmp_path: Path, is_packed: bool) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    if is_packed:
        with tarfile.open(folder / "a.tar.gz", "w:gz") as tape:
            tape.add(BEFORE, "before")
    else:
        shutil.copytree(BEFORE, folder / "before")
    row = _scanned(folder, tmp_path / "store")
    with opened_memory(row) as memory:
        assert memory.spaces[0].size == row["needs"]
    with pytest.raises(InputError, match="has changed since"), opened_memory({**row, "key": "x"}):
        pass


def test_what_is_no_longer_in_its_archive_is_said(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tape:
        tape.add(BEFORE, "before")
    row = {"source": f"{tmp_path / 'a.tar.gz'}!/gone.txt", "id": "x-0", "key": "", "recipe": ""}
    with pytest.raises(InputError, match="no longer exists"), opened_memory(row):
        pass
