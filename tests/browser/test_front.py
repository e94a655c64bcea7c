"""Memory against operations in a real browser: drawn, by pointer, by keys, for everybody."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from hlomem.cli import main
from tests.browser.conftest import Shown
from tests.browser.test_reading import AXE
from tests.places import GOLDENS

MODULE = GOLDENS / "pairs" / "remat_removed" / "after" / "module.hlo"
LIMIT = "4MiB"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a program's front."""
    page = tmp_path_factory.mktemp("front") / "front.html"
    words = ["improve", str(MODULE), "--pareto", "--fit", LIMIT, "--html", str(page)]
    assert main(words) == 0
    return page


@pytest.fixture
def shown(browser: Browser, written: Path) -> Iterator[Shown]:
    """It in a window."""
    made = Shown(browser, written, viewport={"width": 1280, "height": 900})
    yield made
    assert made.problems == []
    made.page.close()


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The points, as the command has them."""
    page = tmp_path_factory.mktemp("points") / "front.json"
    with pytest.MonkeyPatch.context() as patch, page.open("w") as file:
        patch.setattr("sys.stdout", file)
        assert main(["improve", str(MODULE), "--pareto", "--fit", LIMIT, "--json"]) == 0
    loaded: list[dict[str, Any]] = json.loads(page.read_text())["front"]
    return loaded


def test_the_table_has_every_point_and_names_the_one_that_fits(
    shown: Shown, points: list[dict[str, Any]]
) -> None:
    rows = shown.page.locator("#front-table tr.linked").all_inner_texts()
    assert len(rows) == len(points)
    for row, point in zip(rows, points, strict=True):
        assert point["name"] in row
        assert ("the cheapest that fits" in row) is point["is_chosen"]
    assert "in all" in shown.text("front-answer")


def test_arrows_go_from_point_to_point_and_leave_the_cursor_alone(
    shown: Shown, points: list[dict[str, Any]]
) -> None:
    step = shown.ask("hlomem.state.step")
    shown.page.focus("#front")
    for point in points[:2]:
        shown.page.keyboard.press("ArrowRight")
        assert point["name"] in shown.text("front-point")
    shown.page.keyboard.press("End")
    assert points[-1]["name"] in shown.text("front-point")
    shown.page.keyboard.press("ArrowLeft")
    assert shown.ask("hlomem.state.point") == len(points) - 2
    assert shown.ask("hlomem.state.step") == step
    assert f"point={len(points) - 2}" in shown.link()


def test_a_row_is_reached_by_one_tab_and_chosen_by_enter(shown: Shown) -> None:
    assert shown.ask("document.querySelectorAll('#front-table tr[tabindex=\"0\"]').length") == 1
    shown.page.focus("#front-table tr.linked")
    shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("Enter")
    assert shown.ask("hlomem.state.point") == 1
    assert shown.ask("document.activeElement.rowIndex") == 2


def _place(points: list[dict[str, Any]], box: Any) -> tuple[float, float]:
    """The pixel of the program as given, between the axis and the lane of labels."""
    shares = [its["flops"] / its["program_flops"] for its in points]
    given = next(its for its in points if its["kind"] == "given")
    low, high = min(0, *shares), max(0.01, *shares)
    share = (0.04 * (high - low) - low) / (1.08 * (high - low))
    level = (4 << 20) - (given["total"] - given["temporaries"])
    top = 1.1 * max(level, *(its["temporaries"] for its in points))
    height = box["height"] - 34
    x = box["x"] + 74 + share * (box["width"] - 74 - 118)
    return x, box["y"] + height - height * given["temporaries"] / top


def test_the_pointer_tells_what_is_under_it_and_chooses_it(
    shown: Shown, points: list[dict[str, Any]]
) -> None:
    shown.page.locator("#front").scroll_into_view_if_needed()
    x, y = _place(points, shown.page.locator("#front").bounding_box())
    shown.page.mouse.move(x, y)
    assert "as given" in shown.text("tip")
    shown.page.mouse.click(x, y)
    assert (
        shown.ask("hlomem.state.point")
        == [number for number, its in enumerate(points) if its["kind"] == "given"].pop()
    )
    shown.page.mouse.move(5, y)
    assert not shown.page.is_visible("#tip")


def test_a_page_without_points_shows_none(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "orders.html"
    assert main(["improve", str(MODULE), "--html", str(page)]) == 0
    shown = Shown(browser, page)
    assert not shown.page.is_visible("#front-section")
    assert shown.problems == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_it_keeps_nobody_out(browser: Browser, written: Path, theme: str, width: int) -> None:
    if not AXE.exists():
        if os.environ.get("CI"):
            pytest.fail("no axe-core in CI; `make js` installs it")
        pytest.skip("no axe-core here; `make js` installs it")
    size = {"width": width, "height": 900}
    shown = Shown(browser, written, color_scheme=theme, viewport=size)
    assert shown.ask("document.documentElement.scrollWidth") == width
    shown.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = shown.page.evaluate(
        "() => axe.run('#front-section', {runOnly: ['wcag2a', 'wcag2aa', 'wcag22aa']}).then("
        "({violations}) => violations.map(rule => rule.id))"
    )
    assert found == []
