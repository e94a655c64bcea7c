"""Bytes add up: by role to XLA's total, by buffer to what is alive at any step."""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlomem
from hlomem.api.load import reading_once
from hlomem.base.errors import CommandError, HlomemError, InputError
from hlomem.report.data.allocation_kinds import HELD_WHOLE, kind_of
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory, share_view
from hlomem.report.data.occupancy import build_role_shares
from tests.places import GOLDENS

DUMPS = [*sorted((GOLDENS / "seeds").glob("*.txt")), *sorted((GOLDENS / "xla").glob("*/*/*"))]
SEED_003 = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"


def _memory(path: Path) -> MemoryView:
    return build_memory(hlomem.load(path))


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: "/".join(p.parts[-3:]))
def test_roles_add_up_to_the_total_of_each_space(path: Path) -> None:
    memory = _memory(path)
    assert memory.dump.values is not None
    sizes = [space.size + space.thread_local for space in memory.spaces]
    assert sum(sizes) == memory.dump.values.total_bytes
    for space in memory.spaces:
        shares = build_role_shares(memory, space.color)
        assert sum(share.size for share in shares) == space.size
        assert all(share.size >= 0 for share in shares)


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: "/".join(p.parts[-3:]))
def test_every_step_is_what_is_held_and_the_union_of_the_bytes_of_live_buffers(path: Path) -> None:
    memory = _memory(path)
    for space in memory.spaces:
        timeline = memory.timeline(space.color)
        assert timeline is not None
        steps = {0, memory.steps, timeline.peak.step, memory.steps // 3}
        for step in steps:
            assert timeline.sizes[step] == _bytes_in_use(memory, space.color, step)
            alive = memory.alive(space.color, step)
            assert sum(each.size for each in alive) == timeline.sizes[step]
        assert timeline.peak.size == max(timeline.sizes) <= space.size


def _bytes_in_use(memory: MemoryView, color: int, step: int) -> int:
    """The bytes themselves, as ranges between all boundaries: slow and obvious."""
    allocations = [each for each in memory.joined.allocations if each.color == color]
    held = {each.index: each.size for each in allocations if kind_of(each) in HELD_WHOLE}
    total: int = sum(held.values())
    alive = [
        each
        for each in memory.buffers
        if each.color == color and each.is_live_at(step) and each.allocation not in held
    ]
    for allocation in {each.allocation for each in alive}:
        here = [(b.offset, b.offset + b.size) for b in alive if b.allocation == allocation]
        bounds = sorted({bound for span in here for bound in span})
        for low, high in pairwise(bounds):
            if any(start <= low and high <= end for start, end in here):
                total += high - low
    return total


NUMBERS = list(re.finditer(r"\d+", SEED_003.read_text()))


@given(st.sampled_from(NUMBERS), st.sampled_from(["0", "7", "14", "40000", "9" * 20]))
def test_with_any_number_changed_roles_still_add_up(number: re.Match[str], other: str) -> None:
    text = number.string[: number.start()] + other + number.string[number.end() :]
    try:
        memory = build_memory(hlomem.load(text))
    except HlomemError:
        return
    for space in memory.spaces:
        assert sum(share.size for share in build_role_shares(memory, space.color)) == space.size
        timeline = memory.timeline(space.color)
        if timeline is not None:
            alive = memory.alive(space.color, timeline.peak.step)
            assert sum(each.size for each in alive) == timeline.peak.size


def test_seed_003_is_a_padded_layout_copy_beside_what_it_copies() -> None:
    memory = _memory(SEED_003)
    assert memory.machine.name == "tpu-v5p"
    timeline = memory.timeline(0)
    assert timeline is not None
    assert (timeline.peak.step, timeline.peak.instruction) == (13, "copy.3")
    held = sum(each.size for each in memory.joined.allocations if kind_of(each) in HELD_WHOLE)
    assert timeline.peak.size == 340787200 + 336199680 + held
    assert timeline.near_peaks == ()
    first = memory.alive(0, 13)[0].buffer
    assert (first.name, first.role, first.opcode) == ("copy.3", "copies", "copy")
    assert (first.size, first.padding) == (340787200, 340787200 - 336199680)
    assert first.source is not None
    assert first.source.endswith("flax/linen/linear.py:663")
    shares = {share.role: share.size for share in build_role_shares(memory, 0)}
    assert shares["copies"] == shares["temporaries"] == 336199680
    assert shares["results"] == 335790080


def test_spaces_are_found_by_name_and_by_color() -> None:
    memory = _memory(SEED_003)
    assert find_space(memory).color == 0
    assert find_space(memory, "HBM").color == find_space(memory, "default").color == 0
    assert find_space(memory, "vmem").color == find_space(memory, "1").color == 1
    with pytest.raises(CommandError, match=r"no memory space `host`.*hbm \(0\), vmem \(1\)"):
        find_space(memory, "host")


def test_a_dump_without_allocations_is_refused() -> None:
    text = SEED_003.read_text()
    ranges = hlomem.load(text[text.index("HloLiveRange") :])
    with pytest.raises(InputError, match="no allocations"):
        build_memory(ranges)


def test_two_dumps_of_the_same_records_have_one_view_under_their_own_names(tmp_path: Path) -> None:
    golden = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "call_twice"
    for name in ("one", "two"):
        shutil.copytree(golden, tmp_path / name / "dump")
    with reading_once():
        one, two = (build_memory(hlomem.load(tmp_path / n / "dump")) for n in ("one", "two"))
    shared = share_view(one, two)
    assert shared.joined is one.joined
    assert shared.dump is two.dump
    assert shared.buffers == two.buffers


@pytest.mark.parametrize(
    ("name", "is_shared"), [("other", True), ("module_0001.jit_f.gpu_after_optimizations", False)]
)
def test_names_of_files_matter_where_they_tell_another_machine(
    tmp_path: Path, name: str, is_shared: bool
) -> None:
    golden = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "call_twice"
    for folder in ("one", name):
        shutil.copytree(golden, tmp_path / folder)
    with reading_once():
        one, two = (build_memory(hlomem.load(tmp_path / n)) for n in ("one", name))
    assert (share_view(one, two).joined is one.joined) == is_shared
    assert (one.machine == two.machine) == is_shared


def test_dumps_that_were_read_on_their_own_have_views_of_their_own() -> None:
    golden = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "call_twice"
    one, two = build_memory(hlomem.load(golden)), build_memory(hlomem.load(golden))
    assert share_view(one, two) is two
