"""Reports on dumps that lack files: what is known is said as before, the rest is left out."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

import hlomem
from hlomem.dump.dump import Dump
from hlomem.dump.records import SpaceReport
from hlomem.report.data.explain import explain as explain_buffer
from hlomem.report.data.overview import build_overview
from hlomem.report.page.page import build_page
from hlomem.report.registry import REPORTS
from hlomem.report.screens.explain_text import draw_explanation
from hlomem.report.screens.overview_text import draw_overview
from hlomem.report.screens.text import plain
from tests.check.faults import rebuilt
from tests.places import GOLDENS

XLA = GOLDENS / "xla"
FOLDERS = [
    XLA / "jaxlib-0.12.0.1" / "cpu" / "nested_while",
    XLA / "jaxlib-0.11.2" / "gpu-h200" / "switch_branches",
    XLA / "jaxlib-0.4.30" / "cpu" / "nested_while",
    GOLDENS / "accepted" / "libtpu-0.0.51" / "tpu-v6e" / "g_host_offload_remat",
    XLA / "libtpu-0.0.51" / "tpu-v5e" / "donate_mixed",
]
LACKING = {
    "all": {},
    "no live ranges": {"live_ranges": None},
    "no values": {"values": None},
    "no report": {"report": None},
    "the assignment alone": {"live_ranges": None, "values": None, "report": None},
}
WIDTH = 80


@lru_cache
def _whole(folder: Path) -> Dump:
    return hlomem.load(folder)


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def whole(request: pytest.FixtureRequest) -> Dump:
    """A dump with all its files."""
    return _whole(request.param)


@pytest.fixture(params=LACKING)
def partial(request: pytest.FixtureRequest, whole: Dump) -> Dump:
    """The same without some of them."""
    return rebuilt(whole, **LACKING[request.param])


def test_spaces_add_up_to_the_allocations_of_the_program(partial: Dump) -> None:
    assert partial.assignment is not None
    allocations = partial.assignment.allocations
    shared = [allocation.size for allocation in allocations if not allocation.is_thread_local]
    assert sum(space.size for space in hlomem.explain(partial).memory.spaces) == sum(shared)
    assert build_overview(partial).total == sum(allocation.size for allocation in allocations)


def test_every_report_fits_the_screen_and_saves_no_more_than_there_is(partial: Dump) -> None:
    explained = hlomem.explain(partial)
    for report in REPORTS.values():
        found = report.build(explained.memory, explained.space)
        hint = report.hint_of(found)
        assert hint is None or 0 < hint.size <= explained.space.size
        lines = ["".join(text for text, _ in line) for line in report.draw(found, WIDTH)]
        assert max(map(len, lines)) <= WIDTH


def test_every_buffer_is_explained(partial: Dump) -> None:
    explained = hlomem.explain(partial)
    for buffer in explained.memory.buffers:
        found = explain_buffer(explained.memory, buffer)
        assert draw_explanation(found, WIDTH)


def test_roles_and_allocations_of_the_page_add_up(partial: Dump) -> None:
    page = build_page(hlomem.explain(partial).memory)
    for space in page.spaces:
        assert sum(share.size for share in space.roles) == space.size
        assert sum(allocation.size for allocation in space.allocations) == space.size


def _total(dump: Dump, kind: str) -> int | None:
    """The sum that a file of a dump prints."""
    if kind == "values":
        return None if dump.values is None else dump.values.total_bytes
    if kind == "live_ranges" or dump.report is None:
        return None
    if isinstance(dump.report, SpaceReport):
        return sum(space.total_bytes for space in dump.report.spaces)
    return dump.report.total_bytes


@pytest.mark.parametrize("kind", ["values", "report", "live_ranges"])
def test_a_screen_says_what_one_file_tells(whole: Dump, kind: str) -> None:
    others = {"assignment", "values", "report", "live_ranges"} - {kind}
    overview = build_overview(rebuilt(whole, **dict.fromkeys(others)))
    screen = plain(draw_overview(overview, WIDTH))
    assert overview.total == _total(whole, kind)
    assert ("Needs " in screen) == (overview.needs is not None)
    assert max(map(len, screen.split("\n"))) <= WIDTH
