"""The page of a fleet in a real browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from hlomem.base.sizes import format_bytes
from hlomem.cli import main
from hlomem.fleet import ask, scan
from tests.browser.conftest import Shown
from tests.places import GOLDENS, ROOT

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, in the second of which a program has grown; one name would like to be markup."""
    folder = tmp_path_factory.mktemp("fleet")
    for run, side in (("monday", "before"), ("tuesday", "after")):
        shutil.copytree(GOLDENS / "pairs/batch_doubled" / side, folder / run / "model")
        shutil.copytree(ROOT / "examples/oom/before", folder / run / "<img src=x onerror=alert(1)>")
        (folder / run / "broken-buffer-assignment.txt").write_text("BufferAssignment:\nnonsense")
        scan([folder / run], folder / "store", run=run, workers=1)
    return folder / "store"


@pytest.fixture
def shown(browser: Browser, store: Path, tmp_path: Path) -> Iterator[Shown]:
    """The page with the pages of all programs beside it."""
    target = tmp_path / "fleet.html"
    assert main(["html", str(store), "-o", str(target), "--capacity", "v5e", "--pages", "1"]) == 0
    page = Shown(browser, target)
    yield page
    page.page.close()
    assert page.problems == []
    assert all(url.startswith(("file:", "about:", "data:")) for url in page.requests)


def _rows(shown: Shown) -> list[str]:
    return [row.inner_text() for row in shown.page.query_selector_all("#table tr")][1:]


def test_figures_are_those_of_the_store(shown: Shown, store: Path) -> None:
    programs = ask(
        store,
        "SELECT name, needs FROM modules WHERE run = 'tuesday' AND status = 'ok'"
        " ORDER BY needs DESC",
    ).fetchall()
    rows = _rows(shown)
    assert len(rows) == len(programs) == 2
    for row, (name, needs) in zip(rows, programs, strict=True):
        assert row.startswith(f"{name}\t{format_bytes(needs)}\t")
    assert shown.text("fits").startswith("1 of 1 program need more than 15.75 GiB")
    lines = ask(store, "SELECT sum(size) FROM buffers WHERE run = 'tuesday'"
                " GROUP BY line ORDER BY 1 DESC").fetchall()  # fmt: skip
    amounts = shown.page.query_selector_all("#lines .amount")
    assert [each.inner_text() for each in amounts] == [format_bytes(size) for (size,) in lines[:25]]
    assert "1 input" in shown.text("errors")


def test_a_chip_is_chosen_and_the_table_filters_and_sorts(shown: Shown) -> None:
    shown.page.select_option("#chip", "")
    assert shown.text("fits").startswith("2 programs; the most one needs is 23.90 GiB")
    shown.page.fill("#filter", "MODEL")
    assert shown.text("found") == "1 of 2 programs"
    assert len(_rows(shown)) == 1
    shown.page.fill("#filter", "")
    first = _rows(shown)[0]
    shown.page.click("#table th:nth-child(2)")
    assert _rows(shown)[-1] == first


def test_growth_is_a_line_over_the_runs(shown: Shown, store: Path) -> None:
    spots = shown.page.query_selector_all("#growth circle")
    assert len(spots) == 4  # two programs in two runs
    needs = ask(
        store, "SELECT needs FROM modules WHERE place LIKE 'model%' ORDER BY run"
    ).fetchall()
    grown = needs[1][0] - needs[0][0]
    assert f"+{format_bytes(grown)}" in shown.text("series")


def test_the_worst_program_leads_to_its_own_page(shown: Shown) -> None:
    links = shown.page.query_selector_all("#worst a")
    assert len(links) == 1
    links[0].click()
    shown.page.wait_for_selector("html[data-ready=yes] #skyline")
    assert "23.90 GiB" in shown.text("fits")


def test_a_page_is_made_on_demand(
    shown: Shown, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Path(shown.url.removeprefix("file://"))
    query = "SELECT id FROM modules WHERE run = 'tuesday' AND place LIKE 'model%'"
    assert main(["ask", str(store), query, "--json"]) == 0
    id_ = json.loads(capsys.readouterr().out)["rows"][0]["id"]
    assert main(["html", str(store), "-o", str(target), "--program", id_]) == 0
    assert (target.parent / "fleet.pages" / f"{id_}.html").exists()
    assert main(["html", str(store), "-o", str(target), "--pages", "0", "--force"]) == 0
    shown.open()
    assert len(shown.page.query_selector_all("#worst a")) == 2
