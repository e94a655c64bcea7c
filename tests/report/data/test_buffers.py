"""Buffers say of a value what the dump says."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem.report.data.memory import build_memory
from hlomem.view.joined import display_name
from tests.places import GOLDENS, ROOT

DUMPS = sorted((GOLDENS / "xla").glob("*/*/*"))[::9]


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: "/".join(p.parts[-3:]))
def test_a_buffer_is_its_value_in_its_place(path: Path) -> None:
    memory = build_memory(hlomem.load(path))
    for buffer, placed in zip(memory.buffers, memory.joined.placed, strict=True):
        assert buffer.name == display_name(placed.value)
        assert (buffer.allocation, buffer.offset, buffer.size) == placed.slice
        assert 0 <= buffer.padding <= buffer.size
        if placed.life is not None:
            assert (buffer.start, buffer.end) == (placed.life.start, placed.life.end)
            assert buffer.is_live_at(placed.life.start)
            assert not buffer.is_live_at(placed.life.end + 1)
        for other in memory.buffers_in(buffer.allocation)[:20]:
            assert buffer.shares_bytes_with(other) is other.shares_bytes_with(buffer)


def test_an_argument_has_the_name_jax_gave_it() -> None:
    memory = build_memory(hlomem.load(ROOT / "examples" / "oom" / "before"))
    names = {buffer.parameter for buffer in memory.buffers if buffer.opcode == "parameter"}
    assert "params['layers']" in names
