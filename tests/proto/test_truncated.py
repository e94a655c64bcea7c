"""Protos, profiles, caches and executables cut off anywhere: read, or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from tests.places import GOLDENS

STEP = 100
"""Bytes from one cut to the next."""
SAMPLES = sorted(
    path
    for path in (GOLDENS / "protos").rglob("*")
    if path.is_file() and path.suffix not in {".json", ".txt", ".hlo", ".md"}
)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: "-".join(path.parts[-2:])[:80])
def test_a_file_cut_off_anywhere_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    cut = tmp_path / path.name
    refused = 0
    for end in range(0, len(data), STEP):
        cut.write_bytes(data[:end])
        try:
            str(hlomem.load(cut))
        except hlomem.HlomemError as error:
            refused += 1
            assert str(error)
    assert refused
