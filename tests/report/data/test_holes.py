"""What packing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem.report.data.holes import build_holes
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from tests.places import ROOT

GOLDENS = ROOT / "tests" / "goldens"
DUMPS = [*sorted((GOLDENS / "seeds").glob("*.txt")), *sorted((GOLDENS / "xla").glob("*/*/*"))]
SEED_003 = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"


def _memory(path: Path) -> MemoryView:
    return build_memory(hlomem.load(path))


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: "/".join(p.parts[-3:]))
def test_holes_and_what_is_alive_make_up_the_allocation(path: Path) -> None:
    memory = _memory(path)
    for space in memory.spaces:
        holes = build_holes(memory, space)
        for allocation in holes.allocations:
            empty = sum(hole.size for hole in allocation.holes)
            assert allocation.most_alive + empty == allocation.size
        assert holes.size == sum(sum(h.size for h in each.holes) for each in holes.allocations)


def test_a_hole_names_who_lies_above_and_who_was_there() -> None:
    memory = _memory(SEED_003)
    [allocation] = build_holes(memory, find_space(memory)).allocations
    [hole] = allocation.holes
    assert (hole.offset, hole.size) == (0, 32768)
    assert (hole.above, hole.above_start, hole.above_end) == ("copy.3", 13, 14)
    assert (hole.before, hole.before_end, hole.after) == ("copy-start.1{}", 11, None)
