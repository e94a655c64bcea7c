"""The data of the page: complete columns, sums that agree with the other reports."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

import hlomem
from hlomem.report.data import roles
from hlomem.report.data.bands import build_bands
from hlomem.report.data.diff import build_diff
from hlomem.report.data.memory import MemoryView, build_memory
from hlomem.report.page import page as report_page
from hlomem.report.page.html import bundle, format_page
from hlomem.report.page.page import Columns, Page, build_page
from hlomem.report.page.waterfall import build_waterfall
from tests.places import GOLDENS

DUMPS = [*sorted((GOLDENS / "seeds").glob("*.txt")), *sorted((GOLDENS / "xla").glob("*/*/*"))]
PAIRS = sorted((GOLDENS / "pairs").iterdir())
LOOPS = GOLDENS / "xla/jaxlib-0.12.0.1/cpu/nested_while"


def _memory(path: Path) -> MemoryView:
    return build_memory(hlomem.load(path))


def _page(memory: MemoryView) -> Page:
    return build_page(memory)


@pytest.mark.parametrize("path", DUMPS[::3], ids=lambda p: "/".join(p.parts[-3:]))
def test_columns_hold_every_buffer(path: Path) -> None:
    memory = _memory(path)
    page = _page(memory)
    columns = page.buffers
    for field in Columns.__struct_fields__:
        assert len(getattr(columns, field)) == len(memory.buffers)
    role_names = [role.name for role in page.roles]
    for at, buffer in enumerate(memory.buffers):
        assert (columns.id[at], columns.offset[at], columns.size[at]) == (
            buffer.id,
            buffer.offset,
            buffer.size,
        )
        assert page.texts[columns.name[at]] == buffer.name
        assert role_names[columns.role[at]] == buffer.role
        source = columns.source[at]
        assert (None if source == -1 else page.texts[source]) == buffer.source
    assert sorted(columns.rank) == list(range(len(memory.buffers)))
    assert len(set(page.texts)) == len(page.texts)


@pytest.mark.parametrize("path", DUMPS[::3], ids=lambda p: "/".join(p.parts[-3:]))
def test_spaces_add_up(path: Path) -> None:
    memory = _memory(path)
    for space in _page(memory).spaces:
        assert sum(each.size for each in space.allocations) == space.size
        assert sum(share.size for share in space.roles) == space.size
        assert all(each.role in roles.MEANING for each in space.allocations)


def test_every_padded_shape_says_how_it_grows() -> None:
    space = _page(_memory(GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt")).spaces[0]
    grown = dict(zip((row.example for row in space.padding), space.growths, strict=True))
    assert grown["copy.3"] == "513 → 520"
    assert grown["constant.6"] == "32 → 128, 513 → 520"


def test_what_python_names_no_script_names_again() -> None:
    page = _page(_memory(LOOPS))
    script = bundle("page")
    for label in asdict(page.labels).values():
        assert label not in script
    for role in page.roles:
        assert f'"{role.name}"' not in script or role.name == roles.PADDING  # also a column


def test_bands_lie_within_each_other() -> None:
    bands = build_bands(_memory(LOOPS))
    assert bands
    for number, inner in enumerate(bands):
        around = [
            each
            for each in bands[:number]
            if each.start <= inner.start and inner.end <= each.end and each.depth < inner.depth
        ]
        assert len(around) == inner.depth


@pytest.mark.parametrize("pair", PAIRS, ids=lambda path: path.name)
def test_a_waterfall_goes_from_one_total_to_the_other(pair: Path) -> None:
    before, after = _memory(pair / "before"), _memory(pair / "after")
    diff = build_diff(before, after)
    first, *changes, last = build_waterfall(diff).steps
    at = first.end
    for bar in changes:
        assert bar.start == at
        at = bar.end
    assert (first.end, at, last.end) == (diff.before.size, diff.after.size, diff.after.size)


def test_the_file_is_small_and_its_data_are_no_markup() -> None:
    page = _page(_memory(LOOPS))
    name = "</script><script>alert('\u2028')</script>\x07\"'"
    text = format_page([replace(page, name=name)])
    data = re.search(r'id="data">([^<]*)<', text)
    assert data is not None
    assert len(text) - len(data[1]) < 1_000_000
    assert name not in text
    assert html.escape("</script>") in text.partition("</title>")[0]
    assert "\x07" not in text
    held = json.loads(zlib.decompress(base64.b64decode(data[1])))
    assert held["reports"][0]["name"] == name
    assert "http://" not in text
    assert "https://" not in text


def test_a_very_large_plan_is_not_checked_in_passing(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = _memory(LOOPS)
    monkeypatch.setattr(report_page, "_MAX_CHECKED", len(memory.buffers))
    assert _page(memory).trust.verdict is not None
    monkeypatch.setattr(report_page, "_MAX_CHECKED", len(memory.buffers) - 1)
    assert _page(memory).trust.verdict is None


def test_a_dump_is_called_by_its_last_name() -> None:
    memory = _memory(GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt")
    assert _page(memory).name == "003_e0d5fae9bf2de249.txt"


def test_a_dump_without_allocations_is_only_named_in_a_notebook(tmp_path: Path) -> None:
    text = next((GOLDENS / "xla").glob("jaxlib-0.12.0.1/cpu/*/live-range.txt")).read_text()
    alone = tmp_path / "<b>-live-range.txt"
    alone.write_text(text)
    shown = hlomem.load(alone)._repr_html_()
    assert shown.startswith("<pre>")
    assert "<b>" not in shown
