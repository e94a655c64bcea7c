"""What layouts cost."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem.base.sizes import format_bytes
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from hlomem.report.data.padding import build_padding, find_fix
from hlomem.report.screens.padding_text import draw_padding
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
    assert first.padding == first.padding_at_peak == 4587520
    [scalar] = [row for row in padding.rows if row.shape == "bf16[]{:T(256)}"]
    assert scalar.growths[0].dimension is None


def test_rows_add_up_and_name_a_fix() -> None:
    [path] = (GOLDENS / "trials/tpu/conv").glob("*train_step*-buffer-assignment.txt*")
    memory = build_memory(hlomem.load(path))
    padding = build_padding(memory, find_space(memory))
    assert sum(row.padding_at_peak for row in padding.rows) == padding.padding_at_peak
    first = padding.rows[0]
    assert first.padding_at_peak == first.padding * first.count_at_peak
    assert first.fix.startswith("blocks of 2 × 2 pixels as channels")
    lines = ["".join(piece for piece, _ in line) for line in draw_padding(padding, 80)]
    assert format_bytes(first.padding_at_peak) in lines[4]
    assert f"{format_bytes(first.padding)} each" in " ".join(line.strip() for line in lines)


FREE = "up to 128 instead of 64 in dimension 3 are free"


@pytest.mark.parametrize(
    ("shape", "fix"),
    [
        (
            "bf16[8,1024,8,64]{3,2,1,0:T(8,128)(2,1)}",
            f"fold dimensions 2 and 3: x.reshape(8, 1024, 512); {FREE}",
        ),
        ("f32[4,3,100]{2,1,0:T(8,128)}", "up to 8 instead of 3 in dimension 1 are free"),
        ("f32[513,128]{1,0:T(8,128)}", "up to 520 instead of 513 in dimension 0 are free"),
        ("f32[16,5,100]{2,1,0:T(8,128)}", "up to 8 instead of 5 in dimension 1 are free"),
        ("f32[16,16,100]{2,1,0:T(8,128)}", "up to 128 instead of 100 in dimension 2 are free"),
        ("f32[128,128]{1,0:T(8,128)}", ""),
        ("f32[3]{0}", ""),
    ],
)
def test_a_fix_is_about_the_dimension_that_grows_most(shape: str, fix: str) -> None:
    assert find_fix(shape) == fix
