"""Readers that end: who is told of it, and how."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from hlomem.base.errors import CommandError
from hlomem.fleet import workers
from hlomem.fleet.finding import unit_at
from hlomem.fleet.reading import ScanOptions, Task
from hlomem.fleet.workers import Child, ChildEndedError, Group, open_pool, run_task


def test_a_unit_whose_readers_end_twice_is_an_error_that_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Child.__init__

    def start_and_end(child: Child, group: Group) -> None:
        start(child, group)
        os.kill(child.pid, signal.SIGTERM)
        child._process.wait()

    monkeypatch.setattr(Child, "__init__", start_and_end)
    path = tmp_path / "m.after_optimizations.txt"
    path.write_text("HloModule m")
    outcome = run_task(Task(unit=unit_at(str(path)), options=ScanOptions()))
    row = json.loads(outcome.tables["modules"])
    assert row["error_kind"] == "crash"
    assert row["error"] == "its process ended with SIGTERM, twice"


def test_a_group_that_is_over_starts_nobody() -> None:
    group = Group()
    group.end()
    with pytest.raises(ChildEndedError, match="the scan was ended"):
        Child(group)


def test_a_scheduler_without_workers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    def connect(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(nthreads=dict, close=lambda: closed.append(True))

    monkeypatch.setattr(workers, "require", lambda *_: SimpleNamespace(Client=connect))
    with (
        pytest.raises(CommandError, match="scheduler at tcp://here has no workers"),
        open_pool(1, "tcp://here"),
    ):
        pass
    assert closed
