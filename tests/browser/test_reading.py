"""How the report is read: answers first, one scale, what stands out, and who can use it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import hlomem
from hlomem.cli import main
from hlomem.report.data.memory import build_memory
from hlomem.report.page.html import format_page
from hlomem.report.page.page import build_page
from tests.browser.conftest import Shown
from tests.places import GOLDENS, ROOT

Show = Callable[..., Shown]
TRAINING = GOLDENS / "trials/tpu/gpt"
OTHER = GOLDENS / "trials/tpu/gpt_remat"
LOOPS = GOLDENS / "xla/jaxlib-0.12.0.1/cpu/nested_while"
AXE = ROOT / "node_modules/axe-core/axe.min.js"


def test_advice_comes_before_the_drawings_and_can_be_copied(show: Show) -> None:
    shown = show(TRAINING)
    heads = shown.ask("[...document.querySelectorAll('h2')].map(head => head.textContent)")
    assert isinstance(heads, list)
    assert heads.index("What would save memory?") < heads.index("When is the peak?")
    code = shown.page.inner_text("#advice .card:first-child pre")
    shown.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown.page.click("#advice .card:first-child button")
    shown.page.wait_for_selector("#advice >> text=copied")
    assert str(shown.ask("navigator.clipboard.readText()")).strip() == code.strip()


def test_the_line_is_the_second_column_and_on_the_screen(show: Show) -> None:
    shown = show(TRAINING, viewport={"width": 1366, "height": 900})
    for table in ("Buffers", "Padding", "Copies"):
        shown.page.click(f"#tables >> text={table}")
        shown.ask("0")
        heads = shown.page.locator("#table th").all_inner_texts()
        assert not heads or heads[1] == "line"
    shown.page.click("#tables >> text=Buffers")
    shown.ask("0")
    box = shown.page.locator("#table th:nth-child(2)").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] < 1366


def test_the_wheel_scrolls_the_page_and_with_ctrl_zooms(show: Show) -> None:
    shown = show(TRAINING, viewport={"width": 1366, "height": 700})
    shown.page.locator("#map").scroll_into_view_if_needed()
    before = shown.ask("[scrollY, hlomem.state.from, hlomem.state.to]")
    assert isinstance(before, list)
    shown.page.hover("#map", position={"x": 400, "y": 60})
    shown.page.mouse.wheel(0, 200)
    shown.page.wait_for_timeout(300)
    scrolled = shown.ask("scrollY")
    assert isinstance(scrolled, int | float)
    assert scrolled > before[0]
    assert shown.ask("[hlomem.state.from, hlomem.state.to]") == before[1:]
    shown.page.hover("#skyline", position={"x": 400, "y": 60})
    there = shown.ask("scrollY")
    shown.page.keyboard.down("Control")
    shown.page.mouse.wheel(0, -400)
    shown.page.keyboard.up("Control")
    assert shown.ask("scrollY") == there
    assert shown.ask("hlomem.state.to - hlomem.state.from") != before[2] - before[1]


def test_lane_and_map_have_one_scale(show: Show) -> None:
    shown = show(TRAINING)
    drawn = shown.ask("hlomem.lane()")
    assert isinstance(drawn, list)
    per_byte = shown.ask("document.querySelector('#map').clientHeight / hlomem.state.high")
    assert isinstance(per_byte, float)
    assert drawn
    for entry in drawn:
        assert entry["tall"] == pytest.approx(entry["size"] * per_byte)


def test_the_bar_is_to_scale_and_the_chip_is_the_one_asked_about(show: Show) -> None:
    shown = show(TRAINING, options=["--capacity", "v5e"])
    assert shown.ask("document.querySelector('#chip').value") == "v5e"
    share = shown.ask(
        "[...document.querySelectorAll('#capacity i')].reduce((sum, part) => sum +"
        " part.getBoundingClientRect().width, 0) /"
        " document.querySelector('#capacity').clientWidth"
    )
    wanted = shown.ask("hlomem.space().size / hlomem.report().chips.v5e")
    assert share == pytest.approx(wanted, abs=0.005)
    assert "times as wide" in shown.text("enlarged-note")
    shown.page.select_option("#chip", "")
    shown.page.wait_for_selector("#enlarged", state="hidden")


def test_a_size_that_was_given_is_the_device(show: Show) -> None:
    shown = show(TRAINING, options=["--capacity", "3GiB"])
    assert "3.00 GiB" in shown.text("fits")
    assert "given, 3.00 GiB" in shown.page.inner_text("#chip option:first-child")


def test_forward_backward_and_loops_are_marked(show: Show) -> None:
    names = show(TRAINING).ask("[...new Set(hlomem.report().phases.map(phase => phase.name))]")
    assert isinstance(names, list)
    assert {"forward", "backward"} <= set(names)
    shown = show(LOOPS)
    assert shown.ask("hlomem.report().phases.length") == 0
    shown.page.locator("#bands").scroll_into_view_if_needed()
    shown.page.hover("#bands", position={"x": 400, "y": 28})
    assert shown.text("tip").startswith("loop")


def test_what_is_found_stands_out_sums_up_and_filters_the_table(show: Show) -> None:
    shown = show(TRAINING)
    rows = shown.page.locator("#table tr.linked")
    all_rows = rows.count()
    before = shown.page.locator("#map").screenshot()
    shown.page.fill("#search", "gpt.py:48")
    found = shown.text("found")
    assert "found," in found
    assert "in use at the cursor" in found
    assert 0 < rows.count() < all_rows
    lines = shown.page.locator("#table tr.linked td:nth-child(2)").all_inner_texts()
    assert all(line.endswith("gpt.py:48") for line in lines)
    owned = shown.ask(
        "hlomem.report().alive(hlomem.state.space, hlomem.state.step)"
        ".filter(([i]) => hlomem.state.matches.includes(i)).reduce((sum, [, own]) => sum + own, 0)"
    )
    shown.page.click("#tables >> text=Source lines")
    assert shown.ask("parseInt(document.querySelectorAll('#table tr.linked').length)") == 1
    assert isinstance(owned, int | float)
    assert owned > 0
    assert shown.page.locator("#map").screenshot() != before


def test_a_role_of_the_legend_can_be_looked_at_alone(show: Show) -> None:
    shown = show(TRAINING)
    before = shown.page.locator("#skyline").screenshot()
    button = shown.page.locator("#legend button", has_text="activations")
    button.click()
    assert shown.ask("hlomem.state.role") == "activations"
    roles = shown.page.locator("#table tr.linked td:nth-child(4)").all_inner_texts()
    assert set(roles) == {"activations"}
    assert shown.page.locator("#skyline").screenshot() != before
    assert "#" in shown.link()
    shown.open(shown.link())
    assert shown.ask("hlomem.state.role") == "activations"
    shown.page.keyboard.press("Escape")
    assert shown.ask("hlomem.state.role") == ""


def test_lines_have_a_legend_when_they_colour(show: Show) -> None:
    shown = show(TRAINING)
    assert shown.page.locator("#line-legend button").count() == 0
    shown.page.select_option("#colouring", "line")
    shown.ask("0")
    first = shown.page.locator("#line-legend button").first
    assert "MiB" in first.inner_text()
    first.click()
    assert "found," in shown.text("found")


def test_buffers_are_called_as_the_program_calls_them(show: Show) -> None:
    shown = show(TRAINING)
    names = shown.page.locator("#table tr.linked td:nth-child(1)").all_inner_texts()
    assert any(name.startswith("params['") for name in names)
    assert not any(name.startswith("fusion") for name in names[:5])


def test_allocations_are_grouped_by_kind(show: Show) -> None:
    shown = show(TRAINING)
    groups = shown.page.locator("#allocation optgroup").count()
    options = shown.page.locator("#allocation option").count()
    allocations = shown.ask("hlomem.space().allocations.length")
    assert isinstance(allocations, int)
    assert 1 < groups < 12
    assert options <= 1 + 13 * groups < allocations
    value = shown.ask("document.querySelector('#allocation option[value^=kind]').value")
    shown.page.select_option("#allocation", str(value))
    assert shown.ask("hlomem.state.allocation") == value


def test_two_compiles_are_named_by_what_differs_and_changes_can_be_seen(show: Show) -> None:
    shown = show(TRAINING, OTHER)
    assert shown.text("name") == "A: gpt → B: gpt_remat"
    widths = shown.ask(
        "[...document.querySelectorAll('#waterfall .lane i')].map(bar =>"
        " bar.getBoundingClientRect().width / bar.parentElement.clientWidth)"
    )
    assert isinstance(widths, list)
    assert max(widths[1:-1]) > 0.15
    assert "not at 0" in shown.text("floor")


def test_keys_are_shown_and_closed_by_keys(show: Show) -> None:
    shown = show(TRAINING)
    shown.page.keyboard.press("?")
    assert shown.page.is_visible("#keys")
    step = shown.ask("hlomem.state.step")
    shown.page.keyboard.press("ArrowRight")
    assert shown.ask("hlomem.state.step") == step
    shown.page.keyboard.press("Escape")
    assert not shown.page.is_visible("#keys")


def test_a_table_is_one_stop_of_the_tab_key(show: Show) -> None:
    shown = show(TRAINING)
    assert shown.ask("document.querySelectorAll('#table tr[tabindex=\"0\"]').length") == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1366])
def test_nothing_keeps_anybody_out(show: Show, theme: str, width: int) -> None:
    """axe's rules for WCAG 2.2 AA, on one compile and, at one width, on two."""
    if not AXE.exists():
        if os.environ.get("CI"):
            pytest.fail("no axe-core in CI; `make js` installs it")
        pytest.skip("no axe-core here; `make js` installs it")
    paths = [TRAINING, OTHER] if width > 1000 else [TRAINING]
    shown = show(*paths, color_scheme=theme, viewport={"width": width, "height": 900})
    shown.page.fill("#search", "gpt.py:48")
    shown.page.evaluate(AXE.read_text(encoding="utf-8"))
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    found = shown.page.evaluate(
        "tags => axe.run(document, {runOnly: tags}).then(({violations}) => violations.map("
        "rule => rule.id + ': ' + rule.nodes.map(node => node.html.slice(0, 120)).join(' | ')))",
        tags,
    )
    assert found == []


def test_the_advice_is_that_of_the_command(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    shown = show(LOOPS)
    capsys.readouterr()
    assert main(["advise", str(LOOPS), "--json"]) == 0
    advised = json.loads(capsys.readouterr().out)["advice"]
    assert shown.page.locator("#advice h3").all_inner_texts() == [row["title"] for row in advised]


def test_without_advice_upper_bounds_are_shown_as_such(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(format_page([build_page(build_memory(hlomem.load(TRAINING)))]), "utf-8")
    shown = Shown(browser, path)
    assert shown.text("advice-note").startswith("Upper bounds")
    assert shown.page.locator("#advice h3").first.inner_text().startswith("at most")
    shown.page.close()
    assert shown.problems == []
