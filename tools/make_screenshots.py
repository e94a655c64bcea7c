"""Takes the pictures of the report that the documents show.

    python -m tools.make_screenshots

Each is a page written by `hlomem html` from a file of this repository, opened in Chromium (`make
browser`), in a window of the given size.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from playwright.sync_api import sync_playwright

from tools.install_browser import find_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
_PAIR = "tests/goldens/pairs/remat_removed"


class Shot(NamedTuple):
    """One picture."""

    name: str
    inputs: tuple[str, ...]
    height: int
    part: str = "body"
    """What of the page; the window is its size where it is all."""
    link: str = ""
    theme: str = "light"
    width: int = 1200
    options: tuple[str, ...] = ()


SHOTS = (
    Shot("oom", ("examples/oom/before",), 1000, options=("--capacity", "v5e")),
    Shot("report", ("examples/train_step",), 840),
    Shot("skyline", ("examples/train_step",), 900, "section:has(#skyline)", "#step=46"),
    Shot("map", ("examples/train_step",), 900, "section:has(#map)", "#find=fusion.1"),
    Shot("icicle", ("examples/train_step",), 900, "section:has(#icicle)"),
    Shot("seed", ("tests/goldens/seeds/003_e0d5fae9bf2de249.txt",), 840, theme="dark"),
    Shot("comparison", (f"{_PAIR}/before", f"{_PAIR}/after"), 880),
)


def take(browser: Browser, shot: Shot, folder: Path) -> None:
    """Writes a report, opens it and takes its picture."""
    report = folder / f"{shot.name}.html"
    line = [sys.executable, "-m", "hlomem", "html", *shot.inputs, *shot.options]
    line += ["-o", str(report)]
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True)
    page = browser.new_page(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.theme == "dark" else "light",
    )
    page.goto(report.as_uri() + shot.link)
    page.wait_for_selector("html[data-ready=yes]")
    target = PICTURES / f"{shot.name}.png"
    if shot.part == "body":
        page.screenshot(path=target)
    else:
        page.locator(shot.part).screenshot(path=target)
    page.close()
    print(f"{target.relative_to(ROOT)}  {target.stat().st_size // 1000} kB")


def main() -> None:
    """Takes all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        path = find_browser()
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for shot in SHOTS:
            take(browser, shot, Path(folder))


if __name__ == "__main__":
    main()
