"""Kernels on the screen: a grid that fits the width, and every cell a verdict."""

from __future__ import annotations

import pytest

from hlomem.kernels.blocks import Block, KernelFacts
from hlomem.report.data.kernels import KernelReport, KernelRow, LargestBlocks, kernel_use
from hlomem.report.page.kernels_page import format_kernels
from hlomem.report.screens.kernels_text import describe_change, draw_kernels
from hlomem.report.screens.text import plain

LIMIT = 16 << 20
TARGET = "tpu-v5e:2x2"


def _facts(rows: int) -> KernelFacts:
    block = Block(role="in", name="args[0]", dtype="float32", bits=32, shape=(rows, 1024), copies=2)
    spare = Block(
        role="scratch", name="scratch[0]", dtype="float32", bits=32, shape=(8, 128), copies=0
    )
    return KernelFacts(name="mine", line="/home/me/k.py:7", grid=(4, 0), blocks=(block, spare))


def _row(rows: int, used: int | None, fits: bool | None, how: str) -> KernelRow:
    use = kernel_use(_facts(rows), LIMIT, used)
    return KernelRow(target=TARGET, settings={"block": rows}, kernels=(use,), fits=fits, how=how)


ROWS = (
    _row(128, None, True, "larger blocks fit"),
    _row(512, 6 << 20, True, "compiled"),
    _row(1024, 18 << 20, False, "compiled"),
    _row(4096, None, False, "lower bound"),
    KernelRow(target=TARGET, settings={"block": 100}, problem="ValueError: no"),
)
GRID = KernelReport(
    subject="k.py:make",
    targets=(TARGET,),
    settings={"seq": 4},
    over={"block": [128, 512, 1024, 4096, 100]},
    rows=ROWS,
    largest=(LargestBlocks(target=TARGET, settings={"block": 512}, is_proven=True, compiles=2),),
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_grid_has_a_verdict_in_every_cell(width: int) -> None:
    text = plain(draw_kernels(GRID, width))
    line = next(line for line in text.splitlines() if "38%" in line)
    assert line.split() == ["≤", "38%", "✗", "112%", "✗", "≥200%", "?"]
    assert "largest that fits: block=512, 6.00 MiB of 16.00 MiB; 2 settings compiled" in " ".join(
        text.split()
    )
    assert "? block=100: ValueError: no" in text
    assert max(map(len, text.splitlines())) <= max(width, 66)


def test_one_kernel_shows_parts_blocks_and_what_may_go() -> None:
    row = ROWS[1]
    report = KernelReport(subject="k.py:make", targets=(TARGET,), settings={}, over={}, rows=(row,))
    text = str(report)
    assert "mine  k.py:7  grid 4×?" in text
    assert "uses 6.00 MiB of 16.00 MiB VMEM, fits" in text
    assert "inner values, spills, other scratch" in text
    assert "scratch[0] float32[8,128], if it is not optimized away" in text
    assert sum(part.size for part in row.kernels[0].parts) == 6 << 20


def test_a_kernel_that_was_not_compiled_says_why() -> None:
    report = KernelReport(
        subject="k.py:make", targets=(TARGET,), settings={}, over={}, rows=(ROWS[3],)
    )
    assert "32.00 MiB or more of 16.00 MiB VMEM: does not fit" in " ".join(str(report).split())


def test_a_change_names_what_changes() -> None:
    before = {"a": 512, "b": 256}
    assert describe_change(before, {"a": 256, "b": 256}) == "change a from 512 to 256"
    assert describe_change(before, before) == "fits as it is"


def test_the_page_escapes_names() -> None:
    page = format_kernels(GRID)
    assert page.count("<rect") == len(ROWS)
    assert "<title>block=512: mine, 6.00 MiB of 16.00 MiB, compiled</title>" in page
