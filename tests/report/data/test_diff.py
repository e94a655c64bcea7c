"""Two compiles of one program: what differs, and that it adds up."""

from __future__ import annotations

import re
from copy import copy
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import hlomem
from hlomem.report.data.diff import GROUPINGS, Diff, build_diff
from hlomem.report.data.memory import build_memory
from hlomem.report.screens.diff_text import draw_diff
from tests.conftest import GOLDENS

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.report.data.diff import Grouping
    from hlomem.report.data.memory import MemoryView

PAIRS = GOLDENS / "pairs"
NAMES = sorted(path.name for path in PAIRS.iterdir() if path.is_dir())


def _open(folder: Path) -> MemoryView:
    module = hlomem.hlo.parse((folder / "module.hlo").read_text())
    return build_memory(hlomem.load(folder), module)


def _diff(name: str, **options: str) -> Diff:
    return build_diff(_open(PAIRS / name / "before"), _open(PAIRS / name / "after"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", GROUPINGS)
def test_groups_and_causes_add_up_to_the_difference(name: str, by: str) -> None:
    found = _diff(name, by=by)
    assert found.delta == found.after.size - found.before.size
    assert sum(row.delta for row in found.rows) == found.delta
    assert sum(cause.delta for cause in found.causes) == found.delta


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", GROUPINGS)
def test_the_same_records_differ_as_little_as_equal_ones(name: str, by: Grouping) -> None:
    """Buffers of equal records are matched and explained one by one, those of the same are not."""
    one, equal = _open(PAIRS / name / "after"), _open(PAIRS / name / "after")
    found = build_diff(one, copy(one), by=by)
    assert found == build_diff(one, equal, by=by)
    assert found.matched == len(one.buffers)


@pytest.mark.parametrize("name", NAMES)
def test_the_other_way_round_is_the_same_difference(name: str) -> None:
    there = _diff(name)
    back = build_diff(_open(PAIRS / name / "after"), _open(PAIRS / name / "before"))
    assert back.delta == -there.delta
    assert (back.matched, back.unmatched) == (there.matched, there.unmatched)


def test_groups_may_differ_where_nothing_happened_to_the_whole() -> None:
    """Other buffers of the same size are at the peak."""
    found = replace(_diff("batch_doubled"), causes=())
    text = str(found)
    assert "What happened" not in text
    assert "By line, from before to after" in text


def test_kinds_of_changes() -> None:
    rows = {row.key: row for row in _diff("batch_doubled").rows}
    assert rows["(arguments)"].kinds == {"grown": 1}
    rows = {row.key: row for row in _diff("remat_removed", by="role").rows}
    assert rows["stacked by a loop"].kinds == {"new": 4}


def _renamed(text: str) -> str:
    """A dump with every instruction's number changed, as another version would number them."""
    return re.sub(r"\b([a-z][\w-]*?)\.(\d+)\b(?!\w*:)", lambda m: f"{m[1]}.{int(m[2]) + 40}", text)


def test_names_of_instructions_do_not_matter(tmp_path: Path) -> None:
    folder = PAIRS / "remat_removed/after"
    for path in folder.glob("*.txt"):
        (tmp_path / path.name).write_text(_renamed(path.read_text()))
    other = build_memory(hlomem.load(tmp_path))
    assert other.joined.sequence != _open(folder).joined.sequence
    found = build_diff(build_memory(hlomem.load(folder)), other)
    assert found.unmatched == 0
    assert found.rows == ()


VERSIONS = sorted((GOLDENS / "xla").glob("*/cpu/nested_while"))


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.parent.parent.name)
def test_one_program_under_two_versions(folder: Path) -> None:
    newest = build_memory(hlomem.load(GOLDENS / "xla/jaxlib-0.12.0.1/cpu/nested_while"))
    older = build_memory(hlomem.load(folder))
    found = build_diff(older, newest, by="role")
    assert sum(row.delta for row in found.rows) == found.delta
    assert found.matched >= 0.7 * len(newest.buffers)
    arguments = {buffer.name for buffer in older.buffers if buffer.parameter}
    assert arguments
    assert not [row for row in found.rows if row.key == "parameters"]


def test_one_program_on_two_backends() -> None:
    cpu = build_memory(hlomem.load(GOLDENS / "xla/jaxlib-0.11.2/cpu/nested_while"))
    gpu = build_memory(hlomem.load(GOLDENS / "xla/jaxlib-0.11.2/gpu-h200/nested_while"))
    found = build_diff(cpu, gpu)
    assert sum(row.delta for row in found.rows) == found.delta
    assert found.matched > found.unmatched


def test_two_plans_of_one_module() -> None:
    module = hlomem.hlo.parse((PAIRS / "remat_removed/after/module.hlo").read_text())
    newest = build_memory(hlomem.plan(module).dump, module)
    assert build_diff(newest, _open(PAIRS / "remat_removed/after")).rows == ()


@pytest.mark.parametrize("by", GROUPINGS)
def test_a_screen_has_80_columns(by: str) -> None:
    for name in NAMES:
        lines = ["".join(text for text, _ in line) for line in draw_diff(_diff(name, by=by), 80)]
        assert max(map(len, lines)) <= 80
        assert len(lines) <= 45


def test_from_python() -> None:
    before, after = (hlomem.load(PAIRS / "batch_doubled" / side) for side in ("before", "after"))
    found = hlomem.diff(before, after, by="role")
    assert found.delta == 655360
    assert found.causes[0].text.startswith("batch 256 became 512")
