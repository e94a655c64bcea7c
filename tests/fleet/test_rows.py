"""Sums of the tables are those of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import load
from hlomem.fleet.rows import build_rows
from hlomem.report.data.memory import build_memory
from tests.places import GOLDENS
from tools.check_fleet import differences_of

ENTRIES = [
    *sorted(GOLDENS.glob("xla/jaxlib-0.12.0.1/cpu/*"))[:4],
    *sorted(GOLDENS.glob("xla/libtpu-*/tpu-*/*"))[:3],
    *sorted(GOLDENS.glob("xla/*/gpu*/*"))[:2],
    *sorted(GOLDENS.glob("seeds/00*"))[:2],
]


@pytest.mark.parametrize("path", ENTRIES, ids=lambda path: path.name)
def test_rows_add_up_to_what_the_commands_say(path: Path) -> None:
    assert differences_of(path) == []


def test_kernels_are_rows_with_what_they_use() -> None:
    rows = build_rows(build_memory(load(GOLDENS / "scoped" / "layers")))["kernels"]
    [kernel] = [row for row in rows if row["kind"] == "kernel"]
    assert (kernel["kernel"], kernel["used"], kernel["limit"]) == (
        "tiled_matmul",
        1 << 20,
        16 << 20,
    )
    assert kernel["space"] == "vmem"
