"""Heaps in MiniMalloc's format: XLA's own offsets solve every one."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem.base.errors import CommandError
from hlomem.base.quantities import Offset, Step
from hlomem.base.source import Source
from hlomem.packer.table import read_problem
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import build_memory
from hlomem.report.heap_csv import heap_of_memory
from hlomem.view.sweep import Residency, iter_sharing
from tests.places import GOLDENS, ROOT

DUMPS = [ROOT / "examples/oom/before", *sorted((GOLDENS / "xla").glob("*/*/*"))[::7]]


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: "-".join(path.parts[-3:]))
def test_offsets_of_xla_solve_the_exported_heap(dump: Path) -> None:
    memory = build_memory(hlomem.load(dump))
    space = find_space(memory)
    try:
        text = heap_of_memory(memory, space).decode()
    except CommandError as error:
        assert "has no temporaries" in str(error)  # noqa: PT017 - many small programs have none
        return
    problem = read_problem(Source("heap.csv", text))
    offsets = [int(row.text.rsplit(",", 1)[1]) for row in problem.rows]
    stays = [
        Residency(
            Step(buffer.lower),
            Step(buffer.upper - 1),
            number,
            Offset(offset),
            Offset(offset + buffer.size),
            number,
        )
        for number, (buffer, offset) in enumerate(zip(problem.buffers, offsets, strict=True))
    ]
    assert not list(iter_sharing(stays))
    assert not any(stay.start % problem.buffers[stay.who].alignment for stay in stays)
    heap = max(memory.temporary_allocations(space.color), key=lambda one: one.size)
    assert max(stay.end for stay in stays) <= heap.size
    assert hlomem.pack(problem.buffers, effort=0).height <= heap.size


def test_a_dump_without_live_ranges_is_refused() -> None:
    [path] = (ROOT / "examples/oom/before").glob("*buffer-assignment.txt*")
    memory = build_memory(hlomem.load(path.read_text()))
    with pytest.raises(CommandError, match="needs the live ranges, which this dump lacks"):
        heap_of_memory(memory, find_space(memory))
