"""What layouts cost."""

from __future__ import annotations

from pathlib import Path

import hlomem
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from hlomem.report.data.padding import build_padding
from tests.places import ROOT

GOLDENS = ROOT / "tests" / "goldens"
SEED_003 = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"


def _memory(path: Path) -> MemoryView:
    return build_memory(hlomem.load(path))


def test_padding_names_the_dimension_that_grows() -> None:
    memory = _memory(SEED_003)
    padding = build_padding(memory, find_space(memory))
    first = padding.rows[0]
    assert first.example == "copy.3"
    assert [str(growth) for growth in first.growths] == ["513 → 520"]
    assert first.growths[0].dimension == 1
    assert padding.padding_at_peak == first.padding == 4587520
    scalar = padding.rows[-1]
    assert (scalar.shape, scalar.growths[0].dimension) == ("bf16[]{:T(256)}", None)
