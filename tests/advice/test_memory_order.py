"""An order made for memory is an order, and keeps little alive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem import hlo
from hlomem.advice.memory_order import memory_order
from hlomem.hlo.padding import padded_size
from tests.conftest import GOLDENS

MODULES = sorted((GOLDENS / "pairs").rglob("module.hlo"))


def _names(text: str) -> list[str]:
    return [each.name for each in memory_order(hlo.parse(text).entry, padded_size)]


def test_what_frees_most_runs_first() -> None:
    text = """HloModule m, is_scheduled=true

ENTRY %main (a: f32[100]) -> f32[2] {
  %a = f32[100]{0} parameter(0)
  %x = f32[100]{0} sine(%a)
  %y = f32[100]{0} cosine(%a)
  %x1 = f32[1]{0} slice(%x), slice={[0:1]}
  %y1 = f32[1]{0} slice(%y), slice={[0:1]}
  ROOT %both = f32[2]{0} concatenate(%x1, %y1), dimensions={0}
}
"""
    assert _names(text) == ["a", "x", "x1", "y", "y1", "both"]


def test_a_barrier_makes_nothing() -> None:
    text = """HloModule m, is_scheduled=true

ENTRY %main (a: f32[100]) -> f32[] {
  %a = f32[100]{0} parameter(0)
  %x = f32[100]{0} sine(%a)
  %x1 = f32[25]{0} slice(%x), slice={[0:25]}
  %barrier = f32[100]{0} opt-barrier(%x)
  ROOT %both = f32[] custom-call(%x1, %barrier), custom_call_target="both"
}
"""
    assert _names(text) == ["a", "x", "barrier", "x1", "both"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_nothing_runs_before_what_it_reads(path: object) -> None:
    module = hlo.parse(path.read_text())  # type: ignore[attr-defined]
    for computation in module.computations:
        order = memory_order(computation, lambda _: 1)
        assert sorted(each.name for each in order) == sorted(
            each.name for each in computation.instructions
        )
        done: set[hlo.HloInstruction] = set()
        for each in order:
            assert done.issuperset({*each.operands, *each.control_predecessors})
            done.add(each)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_chains_that_do_not_meet_run_one_after_the_other(sizes: list[int]) -> None:
    lines = ["HloModule m, is_scheduled=true", "", "ENTRY %main (a: f32[]) -> () {"]
    lines.append("  %a = f32[] parameter(0)")
    for number, size in enumerate(sizes):
        lines.append(f"  %big{number} = f32[{size + 1}]{{0}} broadcast(%a), dimensions={{}}")
    for number, _ in enumerate(sizes):
        piece = f"f32[1]{{0}} slice(%big{number}), slice={{[0:1]}}"
        lines.append(f"  %small{number} = {piece}")
    names = [f"%small{number}" for number, _ in enumerate(sizes)]
    shapes = ", ".join("f32[1]{0}" for _ in sizes)
    lines.append(f"  ROOT %all = ({shapes}) tuple({', '.join(names)})")
    order = _names("\n".join([*lines, "}"]) + "\n")
    for number, _ in enumerate(sizes):
        place = order.index(f"big{number}")
        assert order[place + 1] == f"small{number}"
