"""Temporary folders are gone afterwards, also after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from hlomem.base.scratch import scratch_folder

HOLDS = """
import sys, time
from hlomem.base.scratch import scratch_folder
with scratch_folder("hlomem-test-") as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_folder_is_gone_afterwards() -> None:
    with scratch_folder("hlomem-test-") as folder:
        Path(folder, "file").write_text("x")
    assert not Path(folder).exists()


def test_a_folder_is_gone_after_a_kill() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        folder = Path(child.stdout.readline().strip())
        assert folder.is_dir()
        child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not folder.exists()
