"""Memory from large pages: nothing but the pages is another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hlomem.base.native import kernel

needs_native = pytest.mark.skipif(
    kernel("hlomem.base._large_pages", "use_large_pages") is None,
    reason="_large_pages.c was not built",
)
needs_large_pages = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no kernel with large pages"
)

_FILLS_AND_FREES = """
import random
from hlomem.base._large_pages import use_large_pages

def fill(seed):
    made = random.Random(seed)
    return [(made.random(), "x" * made.randrange(2000)) for _ in range(60_000)]

def check(objects, seed):
    assert objects == fill(seed)

before = fill(1)
assert use_large_pages() and use_large_pages()
after = fill(2)
check(before, 1)
del before
again = fill(3)
check(after, 2)
del after
last = fill(4)
check(again, 3)
check(last, 4)
"""
_COUNTS_LARGE = """
from hlomem.base._large_pages import use_large_pages

def count():
    with open("/proc/self/smaps") as file:
        return sum(line.startswith("VmFlags:") and " hg" in line for line in file)

before = count()
use_large_pages()
objects = [bytes([number % 256]) * 200 for number in range(100_000)]
assert count() >= before + 1, count()
"""
_IS_A_GUEST = """
import sys
import hlomem
from hlomem.cli import main
assert main(["plan", sys.argv[1]]) == 0
assert "hlomem.base._large_pages" not in sys.modules
"""


def _run(code: str, *arguments: str) -> None:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_native
def test_objects_from_before_and_after_live_and_die_beside_each_other() -> None:
    _run(_FILLS_AND_FREES)


@needs_native
@needs_large_pages
def test_the_kernel_is_asked_for_large_pages() -> None:
    _run(_COUNTS_LARGE)


def test_the_memory_of_a_process_that_is_not_ours_stays_as_it_is(tmp_path: Path) -> None:
    module = tmp_path / "module.hlo"
    module.write_text(
        "HloModule m, is_scheduled=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}\n\n"
        "ENTRY %e (p: f32[2]) -> f32[2] {\n"
        "  %p = f32[2]{0} parameter(0)\n"
        "  ROOT %n = f32[2]{0} negate(%p)\n}\n"
    )
    _run(_IS_A_GUEST, str(module))
