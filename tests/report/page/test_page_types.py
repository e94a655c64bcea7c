"""The types of the page's data that its scripts are checked with."""

from __future__ import annotations

import subprocess
import sys

from tests.places import ROOT


def test_they_are_what_the_records_say() -> None:
    """In a process of its own: making them imports what annotations name."""
    command = [sys.executable, "-m", "tools.write_page_types", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
