"""A store that was scanned once, of programs XLA compiled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hlomem.fleet import scan
from tests.places import GOLDENS

PROGRAMS = (
    GOLDENS / "protos",
    GOLDENS / "pairs" / "batch_doubled",
    GOLDENS / "pairs" / "donation_dropped",
    GOLDENS.parent.parent / "examples" / "oom" / "before",
)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of dumps, modules, protos, a cache and a profile."""
    folder = tmp_path_factory.mktemp("programs")
    for path in PROGRAMS:
        shutil.copytree(path, folder / path.name)
    return folder


@pytest.fixture(scope="session")
def store(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Them, scanned; nobody may add to it."""
    pytest.importorskip("duckdb")
    path = tmp_path_factory.mktemp("fleet") / "store"
    done = scan([programs], path, run="first", workers=1, commit_every=3600)
    assert done.errors == 0
    return path
