"""Padding, copies, donations and holes, on dumps that have them."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.report.data.copies import build_copies
from hlomem.report.data.donation import build_donation
from hlomem.report.data.holes import build_holes
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from hlomem.report.data.padding import build_padding
from hlomem.report.registry import REPORTS
from tests.places import ROOT

GOLDENS = ROOT / "tests" / "goldens"
DUMPS = [*sorted((GOLDENS / "seeds").glob("*.txt")), *sorted((GOLDENS / "xla").glob("*/*/*"))]
SEED_003 = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"
GPU_SWAP = GOLDENS / "xla" / "jaxlib-0.11.2" / "gpu-h200" / "donate_swap"
ROTATE = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "loop_rotate3"


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


def test_donation_says_which_argument_could_and_which_does() -> None:
    memory = _memory(ROOT / "examples" / "oom" / "before")
    donation = build_donation(memory, find_space(memory))
    state_of = {row.name: row.state for row in donation.rows}
    assert state_of["params['layers']"] == state_of["opt_state['head']"] == "possible"
    assert state_of["x"] == "no match"
    assert donation.used_size == 0
    assert donation.possible_size == 2 * (48 * 4096 * 4096 + 4096 * 1000) * 4
    after = _memory(ROOT / "examples" / "oom" / "after")
    donation = build_donation(after, find_space(after))
    assert donation.used_size == 2 * (48 * 4096 * 4096 + 4096 * 1000) * 4
    assert donation.possible_size == 0


def test_an_argument_read_after_its_result_is_written_is_not_counted() -> None:
    memory = _memory(GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "zero_size")
    donation = build_donation(memory, find_space(memory))
    [row] = [row for row in donation.rows if row.state == "read later"]
    assert (row.name, row.result) == ("b", "broadcast_multiply_fusion")
    written = "is written at step 5, and wrapped_reduce-window reads the argument at 7"
    assert row.why.endswith(written)
    possible = sum(row.size for row in donation.rows if row.state == "possible")
    assert donation.possible_size == possible


def test_a_donated_argument_no_result_takes_is_lost() -> None:
    path = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "loop_rotate3"
    text = (path / "module.hlo").read_text()
    assert "input_output_alias" not in text
    head, _, rest = text.partition(", ")
    donor = f"{head}, buffer_donor={{ (0, {{}}) }}, {rest}"
    memory = build_memory(hlomem.load(path), hlo.parse(donor))
    donation = build_donation(memory, find_space(memory))
    assert donation.is_declared_known
    assert {row.name: row.state for row in donation.rows}["a"] == "lost"


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


@pytest.mark.parametrize("path", DUMPS[:5] + DUMPS[5::9], ids=lambda p: "/".join(p.parts[-3:]))
def test_the_screens_fit(path: Path) -> None:
    memory = _memory(path)
    for space in memory.spaces:
        for width in (60, 80, 120):
            screens = [
                report.draw(report.build(memory, space), width) for report in REPORTS.values()
            ]
            for line in (line for screen in screens for line in screen[1:]):
                assert len("".join(text for text, _ in line)) <= width
