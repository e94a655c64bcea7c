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


def _refusal(path: Path) -> str | None:
    """The reason a file is refused for; None where it is read."""
    try:
        str(hlomem.load(path))
    except hlomem.HlomemError as error:
        return str(error)
    return None


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: "-".join(path.parts[-2:])[:80])
def test_a_file_cut_off_anywhere_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    cut = tmp_path / path.name
    refusals = []
    for end in range(0, len(data), STEP):
        cut.write_bytes(data[:end])
        refusals.append(_refusal(cut))
    assert any(refusals)
    assert "" not in refusals
