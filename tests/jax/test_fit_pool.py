"""Rows of `fit` on a Dask cluster: the same table, also where a worker is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import hlomem.jax
from hlomem.base.errors import CommandError
from hlomem.jax import fit_pool
from hlomem.jax.compile.messages import Job
from hlomem.jax.fit_rows import RowTask
from tests.places import ROOT

ROWS: dict[str, list[Any]] = {"width": [64, 128, "no"]}


def _table(cache: Path, **options: Any) -> list[Any]:
    found = hlomem.jax.fit(
        "tests/jax/factories.py:step",
        target="cpu",
        capacity="1MiB",
        step=64,
        rows=ROWS,
        cache=cache,
        **options,
    )
    return [
        (row.settings, row.smallest_refused, bool(row.problem), [plan.size for plan in row.plans])
        for row in found.rows
    ]


def test_two_workers_make_the_table_of_one_process_also_if_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
    distributed: Any = pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.chdir(ROOT)
    alone = _table(tmp_path / "alone", workers=1)
    assert [is_problem for *_, is_problem, _ in alone] == [False, False, True]
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        first = next(iter(cluster.workers.values()))

        def kill() -> None:
            while not any((tmp_path / "cluster").glob("*.json")):
                time.sleep(0.05)  # until a plan was made
            os.kill(first.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        assert _table(tmp_path / "cluster", scheduler=cluster.scheduler_address) == alone
        killer.join(5)
        assert not killer.is_alive()


def test_a_cluster_that_is_not_there_is_said(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    with pytest.raises(CommandError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9"):
        _table(tmp_path, scheduler="tcp://127.0.0.1:9")


def test_a_row_whose_workers_die_again_and_again_says_so() -> None:
    class KilledWorker(Exception):  # noqa: N818 - as Dask calls it
        pass

    class Future:
        def exception(self) -> Exception:
            return KilledWorker("step")

    job = Job(factory="m:f", target="cpu")
    task = RowTask(job=job, own={"a": 1}, over="batch", limit=1, cache="")
    future: Any = Future()
    assert "workers died" in fit_pool._outcome(future, task).row.problem
