"""Buffers of two compiles, paired."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem.report.data.matching import match_buffers
from hlomem.report.data.memory import build_memory
from tests.places import GOLDENS

PAIRS = sorted((GOLDENS / "pairs").iterdir())


@pytest.mark.parametrize("folder", [path for path in PAIRS if path.is_dir()], ids=lambda p: p.name)
def test_every_buffer_is_in_one_pair(folder: Path) -> None:
    before, after = (build_memory(hlomem.load(folder / side)) for side in ("before", "after"))
    pairs = match_buffers(before, after)
    for side, memory in (("before", before), ("after", after)):
        ids = [buffer.id for pair in pairs if (buffer := getattr(pair, side)) is not None]
        assert len(ids) == len(set(ids))
        assert set(ids) <= {buffer.id for buffer in memory.buffers}


def test_a_dump_is_itself() -> None:
    memory = build_memory(hlomem.load(GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_while"))
    for pair in match_buffers(memory, memory):
        if pair.before is not None and pair.after is not None:
            assert pair.before.shape == pair.after.shape
