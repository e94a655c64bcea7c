"""What is there twice, and why."""

from __future__ import annotations

from pathlib import Path

import hlomem
from hlomem.report.data.copies import build_copies
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from tests.places import ROOT

GOLDENS = ROOT / "tests" / "goldens"
SEED_003 = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"
GPU_SWAP = GOLDENS / "xla" / "jaxlib-0.11.2" / "gpu-h200" / "donate_swap"
ROTATE = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "loop_rotate3"


def _memory(path: Path) -> MemoryView:
    return build_memory(hlomem.load(path))


def test_copies_say_what_they_are_for() -> None:
    memory = _memory(SEED_003)
    copies = build_copies(memory, find_space(memory))
    assert [(row.name, row.of, row.cause) for row in copies.rows] == [
        ("copy.3", "fusion.5", "layout"),
        ("copy.4", "reshape.6", "layout"),
    ]
    assert copies.rows[0].why == "{2,0,1} becomes {2,1,0}"
    assert (copies.size_at_peak, copies.count_at_peak) == (340787200, 1)
    fast = build_copies(memory, find_space(memory, "vmem"))
    assert {row.cause for row in fast.rows} == {"memory space"}


def test_copies_that_keep_a_value_name_who_would_overwrite_it() -> None:
    memory = _memory(GPU_SWAP)
    why = {row.name: row.why for row in build_copies(memory, find_space(memory)).rows}
    assert why["copy"] == "copy.2 is written over a.1 at step 3"
    rotated = _memory(ROTATE)
    why = {row.name: row.why for row in build_copies(rotated, find_space(rotated)).rows}
    assert why["copy.12"] == "a is not donated, so it may not be written to"
    assert why["copy.10"] == "copy.7 must come to lie where the loop has it"
