"""Sees to it that the report can be tested: Chromium, found or installed.

    python -m tools.install_browser

The machine's own is taken where there is one; else playwright's is downloaded, else the system's
package is installed. Where none of it works the browser tests skip themselves, but not in CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_INSTALLERS = (
    [sys.executable, "-m", "playwright", "install", "chromium"],
    ["apt-get", "install", "--yes", "--quiet", "chromium"],
)
_LONGEST = 300
"""Seconds an installer may take; one without a network gives up late."""


def find_browser() -> str | None:
    """Chromium's path, the system's or playwright's."""
    if found := next(filter(None, map(shutil.which, NAMES)), None):
        return found
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - slow, and rarely needed

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def main() -> int:
    """Says which browser there is; fails in CI where there is none."""
    for installer in (None, *_INSTALLERS):
        if installer is not None and not _run(installer):
            continue
        if found := find_browser():
            print(f"browser tests use {found}")
            return 0
    print("no Chromium, and none could be installed: browser tests skip themselves")
    return 1 if os.environ.get("CI") else 0


def _run(command: list[str]) -> bool:
    if command[0] == "apt-get" and (os.geteuid() != 0 or shutil.which("apt-get") is None):
        return False
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_LONGEST)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
