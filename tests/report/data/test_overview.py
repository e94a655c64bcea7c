"""The overview adds up, on every golden."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem.report.data.allocation_kinds import kind_of
from hlomem.report.data.overview import build_overview
from hlomem.report.screens.overview_text import draw_overview
from tests import plain
from tests.places import GOLDENS

DUMPS = [*sorted((GOLDENS / "seeds").glob("*.txt")), *sorted((GOLDENS / "xla").glob("*/*/*"))]


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: "/".join(p.parts[-3:]))
def test_kinds_and_spaces_add_up_to_the_total(path: Path) -> None:
    dump = hlomem.load(path)
    overview = build_overview(dump)
    assert dump.values is not None
    assert overview.total == dump.values.total_bytes
    assert sum(share.size for share in overview.kinds) == overview.needs
    assert sum(share.size for share in overview.spaces) == overview.total
    assert sum(share.count for share in overview.kinds) == overview.allocation_count


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: "/".join(p.parts[-3:]))
def test_the_screen_fits_any_width(path: Path) -> None:
    overview = build_overview(hlomem.load(path))
    for width in (60, 80, 120):
        for line in draw_overview(overview, width)[1:]:
            assert len("".join(text for text, _ in line)) <= width


def test_the_peak_lists_the_largest_first_with_shape_op_and_line() -> None:
    overview = build_overview(hlomem.load(GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"))
    assert overview.peak is not None
    assert overview.peak.instruction == "reshape.6"
    first = overview.peak.buffers[0]
    assert (first.name, first.size) == ("copy.3", 336199680)
    assert first.shape == "f32[32,513,5120]{2,1,0:T(8,128)}"
    assert first.op_name is not None
    assert first.op_name.startswith("jit(conv_general_dilated)/jit(main)/conv_general_dilated[")
    assert first.source is not None
    assert first.source.endswith("flax/linen/linear.py:663")


def test_every_allocation_has_one_kind() -> None:
    parameter = plain.Parameter(number=0, shape="f32[]", index=())
    assert kind_of(plain.Allocation(index=0, size=4, parameter=parameter)) == "arguments"
    donated = plain.Allocation(index=0, size=4, parameter=parameter, maybe_live_out=True)
    assert kind_of(donated) == "donated arguments"
    assert kind_of(plain.Allocation(index=0, size=4, maybe_live_out=True)) == "results"
    assert kind_of(plain.Allocation(index=0, size=4, is_constant=True)) == "constants"
    assert kind_of(plain.Allocation(index=0, size=4, is_thread_local=True)) == "thread-local"
    assert kind_of(plain.Allocation(index=0, size=4, is_preallocated_temp=True)) == "temporaries"
    assert kind_of(plain.Allocation(index=0, size=4)) == "other"


def test_a_part_alone_shows_what_it_has() -> None:
    folder = GOLDENS / "xla/jaxlib-0.12.0.1/cpu/nested_while"
    report = build_overview(hlomem.load((folder / "memory-usage-report.txt").read_text()))
    assert report.total == 65812
    assert report.peak is None
    live = build_overview(hlomem.load((folder / "live-range.txt").read_text()))
    assert live.total is None
    assert live.peak is not None
    assert live.peak.size == 81936
