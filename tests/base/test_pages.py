"""Pages that are taken at once: nothing but their time is another."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hlomem.base.native import kernel

needs_native = pytest.mark.skipif(
    kernel("hlomem.base._pages", "take_pages_at_once") is None, reason="_pages.c was not built"
)
needs_new_linux = pytest.mark.skipif(
    sys.platform != "linux"
    or tuple(map(int, platform.release().split("-")[0].split(".")[:2])) < (5, 14),
    reason="no kernel that takes pages at once",
)

_FILLS_AND_FREES = """
import random
from hlomem.base._pages import take_pages_at_once

def fill(seed):
    made = random.Random(seed)
    return [(made.random(), "x" * made.randrange(2000)) for _ in range(60_000)]

def check(objects, seed):
    assert objects == fill(seed)

before = fill(1)
assert take_pages_at_once() and take_pages_at_once()
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
_WATCHES_MEMORY = """
from hlomem.base._pages import take_pages_at_once

def largest_step():
    "The most pages that came with 16 objects of a tenth of a page."
    pages = []
    for _ in range(1000):
        kept.append([bytes([number]) * 400 for number in range(16)])
        with open("/proc/self/statm", "rb") as file:
            pages.append(int(file.read().split()[1]))
    return max(after - before for before, after in zip(pages, pages[1:]))

kept = []
assert largest_step() < 100
take_pages_at_once()
assert largest_step() > 200
"""
_IS_A_GUEST = """
import sys
import hlomem
from hlomem.cli import main
assert main(["plan", sys.argv[1]]) == 0
assert "hlomem.base._pages" not in sys.modules
"""


def _run(code: str, *arguments: str) -> None:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_native
def test_objects_from_before_and_after_live_and_die_beside_each_other() -> None:
    _run(_FILLS_AND_FREES)


@needs_native
@needs_new_linux
def test_the_pages_of_an_arena_come_together() -> None:
    _run(_WATCHES_MEMORY)


def test_the_memory_of_a_process_that_is_not_ours_stays_as_it_is(tmp_path: Path) -> None:
    module = tmp_path / "module.hlo"
    module.write_text(
        "HloModule m, is_scheduled=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}\n\n"
        "ENTRY %e (p: f32[2]) -> f32[2] {\n"
        "  %p = f32[2]{0} parameter(0)\n"
        "  ROOT %n = f32[2]{0} negate(%p)\n}\n"
    )
    _run(_IS_A_GUEST, str(module))
