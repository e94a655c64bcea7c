"""Processes that compile: forks of one that has imported, and their own where it cannot fork."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hlomem.jax.compile import serving
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.processes import OwnProcess
from hlomem.jax.known_plans import KnownPlans

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

FACTORY = """
import os, signal, threading
from pathlib import Path
HERE = Path(__file__).parent

def note(word):
    with (HERE / "log").open("a") as file:
        file.write(f"{word} {os.getpid()}\\n")

def preload():
    note("preload")
    THREAD

def make(batch=8):
    import jax
    note("made")
    if batch == 13 and not (HERE / "killed").exists():
        (HERE / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return jax.jit(lambda x: x * 2), (jax.ShapeDtypeStruct((batch,), "float32"),)
"""
SLEEPS = "threading.Thread(target=lambda: __import__('time').sleep(60), daemon=True).start()"


def _plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: str, *batches: int
) -> tuple[list[int], list[list[str]]]:
    """Bytes of plans, and what the factory noted."""
    module = f"made_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(FACTORY.replace("THREAD", thread))
    monkeypatch.syspath_prepend(str(tmp_path))
    known = KnownPlans(tmp_path / "plans")
    job = Job(factory=f"{module}:make", target="cpu")
    sizes = []
    try:
        for batch in batches:
            own = Job(factory=job.factory, target="cpu", settings={"batch": batch})
            sizes.append(known.plan(own, 120, lambda: None).plan.size)
    finally:
        serving.end_servers()
    noted = (tmp_path / "log").read_text().splitlines()
    return sizes, [line.split() for line in noted]


def test_a_factory_is_imported_once_and_forked_for_every_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, noted = _plans(tmp_path, monkeypatch, "pass", 8, 800)
    assert sizes[0] < sizes[1]
    assert [word for word, _ in noted] == ["preload", "made", "made"]
    assert len({pid for _, pid in noted}) == 3
    assert not serving._servers


def test_a_process_with_threads_is_not_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, noted = _plans(tmp_path, monkeypatch, SLEEPS, 8)
    assert len(sizes) == 1
    assert [word for word, _ in noted] == ["preload", "made"]


def test_a_job_with_imports_of_its_own_gets_a_process_of_its_own() -> None:
    """Changed sources must be imported as they are, and the pass for the job's target."""
    plain = Job(factory="m:f", target="cpu")
    assert isinstance(serving.start_for(plain), serving.ServedStart)
    for job in (
        Job(factory="m:f", target="cpu", texts={"m.py": ""}),
        Job(factory="m:f", target="cpu", imports=("hlomem.jax.auto",)),
        Job(factory="m:f", target="cpu", has_calls=True),
    ):
        assert serving.start_for(job) is OwnProcess


def test_a_plan_whose_process_was_killed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, noted = _plans(tmp_path, monkeypatch, "pass", 13)
    assert len(sizes) == 1
    assert [word for word, _ in noted] == ["preload", "made", "made"]


ASKS = """
import sys, threading
from pathlib import Path
from hlomem.jax.compile.messages import Job
from hlomem.jax.known_plans import KnownPlans
here = Path(sys.argv[1])
job = Job(factory=f"{here}/slow.py:make", target="cpu")
KnownPlans(here / "plans").plan(job, 300, lambda: None)
"""
SLOW = """
import os, tempfile, time
from pathlib import Path
def make():
    Path(__file__).with_name("pids").write_text(f"{os.getpid()} {os.getppid()}")
    time.sleep(300)
"""


def test_nothing_is_left_where_who_asked_is_killed(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    asks = subprocess.Popen(
        [sys.executable, "-c", ASKS, str(tmp_path)], env={**os.environ, "TMPDIR": str(scratch)}
    )
    _wait_until((tmp_path / "pids").exists)
    time.sleep(0.2)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    asks.kill()
    asks.wait()
    _wait_until(lambda: not any(_is_running(pid) for pid in pids))
    _wait_until(lambda: not list(scratch.glob("hlomem-*")))


def _is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)
