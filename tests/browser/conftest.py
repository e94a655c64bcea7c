"""A real browser: Chromium, as found on the machine (`make browser` installs one)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from hlomem.cli import main
from tools.install_browser import find_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window; in CI it must be there."""
    found = find_browser()
    if found is None and os.environ.get("CI"):
        pytest.fail("no Chromium in CI; `make browser` installs one")
    if found is None:
        pytest.skip("no Chromium here; `make browser` installs one")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


class Shown:
    """A report in the browser, and what went wrong while it was shown."""

    def __init__(self, browser: Browser, path: Path, **context: object) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page: Page = browser.new_page(**context)  # type: ignore[arg-type]
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on(
            "console",
            lambda said: self.problems.append(said.text) if said.type != "info" else None,
        )
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog {dialog.message}"))
        self.url = path.as_uri()
        self.open()

    def open(self, hash_: str = "") -> None:
        """Load the page, and wait until it has drawn."""
        self.page.goto("about:blank")
        self.page.goto(self.url + hash_)
        self.page.wait_for_selector("html[data-ready=yes]")

    def ask(self, expression: str) -> object:
        """The value of an expression in the page."""
        self.page.evaluate("new Promise(requestAnimationFrame)")
        return self.page.evaluate(expression)

    def link(self) -> str:
        """The address of what is shown; it follows the page after a moment."""
        self.page.wait_for_timeout(400)
        return str(self.page.evaluate("location.hash"))

    def text(self, id_: str) -> str:
        """What an element says."""
        self.page.evaluate("new Promise(requestAnimationFrame)")
        return self.page.inner_text(f"#{id_}")


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Shown]]:
    """Writes the report of one or two dumps and opens it."""
    opened: list[Shown] = []

    def open_report(*paths: Path, options: Sequence[str] = (), **context: object) -> Shown:
        target = tmp_path / f"report{len(opened)}.html"
        assert main(["html", *map(str, paths), "-o", str(target), *options]) == 0
        opened.append(Shown(browser, target, **context))
        return opened[-1]

    yield open_report
    for each in opened:
        each.page.close()
        assert each.problems == []
        assert all(url.startswith(("file:", "about:", "data:")) for url in each.requests)
