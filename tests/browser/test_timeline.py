"""The page of a timeline in a real browser: what is drawn is what the command says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from hlomem.base.sizes import format_bytes
from hlomem.cli import main
from tests.browser.conftest import Shown
from tests.browser.test_reading import AXE
from tests.job.recorded import H200, timeline_of


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a recorded job."""
    page = tmp_path_factory.mktemp("timeline") / "page.html"
    assert main(["timeline", str(H200 / "serve.xplane.pb.gz"), "--html", str(page)]) == 0
    return page


@pytest.fixture
def shown(browser: Browser, written: Path) -> Iterator[Shown]:
    """It in a window."""
    made = Shown(browser, written, viewport={"width": 1280, "height": 900})
    yield made
    assert made.problems == []
    assert made.requests == [made.url]
    made.page.close()


def test_the_peak_is_shown_first_and_its_rows_are_the_commands(shown: Shown) -> None:
    moment = timeline_of("h200/serve").build().moment
    assert shown.text("moment-name").startswith(f"{format_bytes(moment.in_use)} in use")
    rows = shown.page.locator("#table tr").all_inner_texts()
    assert any("temporaries" in row and "forward" in row for row in rows)


def test_any_moment_adds_up(shown: Shown) -> None:
    """A click looks at another moment: its rows are all that is in use."""
    box = shown.page.locator("#curve svg").bounding_box()
    assert box is not None
    before = shown.text("moment-name")
    shown.page.mouse.click(box["x"] + 0.4 * box["width"], box["y"] + 0.5 * box["height"])
    assert shown.text("moment-name") != before
    shares = shown.page.locator("#table tr td:nth-child(2)").all_inner_texts()
    assert sum(float(share.split()[0]) for share in shares) == pytest.approx(100, abs=2)


def test_a_drag_zooms_and_a_button_goes_back(shown: Shown) -> None:
    box = shown.page.locator("#curve svg").bounding_box()
    assert box is not None
    ticks = shown.page.locator("#curve text")
    whole = ticks.all_text_contents()
    shown.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 40)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 40)
    shown.page.mouse.up()
    assert ticks.all_text_contents() != whole
    shown.page.click("#whole")
    assert ticks.all_text_contents() == whole


def test_a_run_opens_its_programs_own_curve(shown: Shown) -> None:
    assert shown.page.locator("#plan-section").is_hidden()
    shown.page.locator("#runs rect").last.dispatch_event("click")
    assert shown.text("plan-name").startswith("Inside a run of ")
    assert shown.page.locator("#plan rect").count() > 10


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_keeps_nobody_out(browser: Browser, written: Path, theme: str) -> None:
    if not AXE.exists():
        if os.environ.get("CI"):
            pytest.fail("no axe-core in CI; `make js` installs it")
        pytest.skip("no axe-core here; `make js` installs it")
    shown = Shown(browser, written, color_scheme=theme, viewport={"width": 400, "height": 900})
    shown.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = shown.page.evaluate(
        "() => axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag22aa']}).then("
        "({violations}) => violations.map(rule => rule.id))"
    )
    assert found == []
