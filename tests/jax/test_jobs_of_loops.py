"""Loops: recorded, rehearsed, looked at while they run."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import pytest

import hlomem.jax
from hlomem.api.job_forecast import find_largest, open_job
from hlomem.base.errors import CommandError
from hlomem.jax.rehearsal import Ghost, rehearse, rehearse_file
from hlomem.jax.target_kinds import parse_target
from hlomem.job.forecast import forecast, requests_of_log
from hlomem.job.log import Drop, JobLog, Put, Run, decode_log
from tests.places import ROOT

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = pytest.importorskip("jax.numpy")
np: Any = pytest.importorskip("numpy")

CPU = "cpu"
SIDE = 64


def init(key: Any) -> Any:
    return jax.random.normal(key, (SIDE, SIDE))


def step(weights: Any, batch: Any) -> Any:
    return weights - 0.1 * jnp.tanh(batch @ weights), (batch @ weights).sum()


def train(job: Any, steps: int = 3) -> None:
    weights = job.call(init, job.put(np.array([0, 7], np.uint32)))
    for number in range(steps):
        batch = job.put(np.ones((SIDE, SIDE), np.float32))
        weights, loss = job.call(step, weights, batch, donate=(0,))
        job.wait(loss)
        job.mark(f"step {number}")


jitted = jax.jit(step, donate_argnums=(0,))


def loop() -> None:
    weights = jax.random.normal(jax.random.key(0), (SIDE, SIDE))
    for _ in range(3):
        weights, loss = jitted(weights, np.ones((SIDE, SIDE), np.float32))
        assert float(loss) == 0.0
    jax.block_until_ready(weights)


def _told(log: JobLog) -> list[str]:
    """The entries of a log, without those of single operations."""
    words = []
    for entry in log.entries:
        if isinstance(entry, Run) and entry.program == "step":
            words.append(f"step {len(entry.donated)}")
        elif isinstance(entry, Put) and entry.size == 4 * SIDE * SIDE:
            words.append("put")
    return words


def test_a_recorded_and_a_rehearsed_job_have_the_same_log(tmp_path: Path) -> None:
    with hlomem.jax.job("train") as recorded:
        train(recorded)
    path = tmp_path / "log.json"
    recorded.write(path)
    real = decode_log(path.read_bytes(), "log")
    rehearsed = rehearse(train, parse_target(CPU), "train", {})
    assert _told(real) == _told(rehearsed) == ["put", "step 1"] * 3
    assert real.programs["step"].requests == rehearsed.programs["step"].requests
    peaks = [forecast(requests_of_log(log), 1 << 40).peak for log in (real, rehearsed)]
    assert peaks[0] == peaks[1]
    assert "Fits in 1.00 GiB" in str(recorded.report(1 << 30))


def test_a_loop_as_it_is_has_the_log_of_the_job() -> None:
    log = rehearse(loop, parse_target(CPU), "loop", {})
    assert _told(log) == ["put", "step 1"] * 3
    made = [
        result.array for entry in log.entries if isinstance(entry, Run) for result in entry.results
    ]
    dropped = {entry.array for entry in log.entries if isinstance(entry, Drop)}
    assert set(made) <= dropped


def test_state_is_not_counted_twice_where_it_is_donated() -> None:
    log = rehearse(train, parse_target(CPU), "train", {"steps": 4})
    ends = dict(requests_of_log(log).curve(1 << 40))
    steps = [n for n, entry in enumerate(log.entries) if isinstance(entry, Run)][1:]
    assert len({ends[number] for number in steps[1:]}) == 1


def test_ghosts_have_the_bytes_of_arrays() -> None:
    assert Ghost((3, 5), np.float32).nbytes == 60


def test_errors_of_a_job_name_its_line(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("def job(job):\n    job.put(1 / 0)\n")
    with pytest.raises(CommandError, match=r"job\.py:2: ZeroDivisionError"):
        rehearse_file(f"{path}:job", CPU, {})


def test_a_server_knows_its_pages() -> None:
    """The largest cache fits, and the next does not."""
    spec, limit = f"{ROOT}/examples/serving/serve.py:serve", 40 << 20
    opened = open_job(spec, CPU, {}, rehearse_file)
    found = find_largest(opened, "pages", 64, limit)
    assert found.is_proven
    assert found.refused == found.value + 64
    assert found.tried[found.value] <= limit < found.tried[found.refused]
    cache = found.value * 2 * 4 * 16 * 4 * 64 * 2
    assert cache < found.tried[found.value]
    jax.clear_caches()  # other tests look for programs by their sizes
    gc.collect()


def test_now_lists_arrays_by_line_and_is_quick() -> None:
    kept = [jnp.ones((SIDE, 100 + number)) for number in range(3)]
    put = jax.device_put(np.ones((SIDE, SIDE), np.float32))
    rows = hlomem.jax.now().data.rows
    mine = [row for row in rows if row.line.startswith(__file__)]
    assert {row.owner for row in mine} == {"result of a program", "array from the host"}
    assert sum(row.size for row in mine) >= sum(array.nbytes for array in [*kept, put])
    many = [jnp.float32(number) + 0 for number in range(10_000)]
    began = time.process_time()
    now = hlomem.jax.now()
    assert time.process_time() - began < 1
    assert now.data.arrays >= 4 * len(many)
    assert "keeps no figures" in str(now)


class _Failed:
    """An array whose run failed: as on an H200 it is ready, raises, and has some address."""

    def is_ready(self) -> bool:
        return True

    def block_until_ready(self) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")


def test_an_array_whose_run_failed_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = jnp.ones((SIDE, 7))
    monkeypatch.setattr(jax, "live_arrays", lambda: [_Failed(), kept])
    assert hlomem.jax.now().data.arrays == kept.nbytes


def test_leaks_between_marks() -> None:
    kept = []
    with hlomem.jax.leaks() as watch:
        for _ in range(3):
            kept.append(jnp.ones((SIDE, 333)))
            watch.mark()
    [line] = [one for one in watch.data.grown if one.unit == 4 * SIDE * 333]
    assert (line.count, line.is_steady) == (2, True)
    assert line.line.startswith(__file__)
    assert "in every interval: a leak" in str(watch)


def test_a_timeline_says_what_a_cpu_cannot_tell() -> None:
    with hlomem.jax.timeline() as block:
        jax.block_until_ready(jnp.ones(10))
    with pytest.raises(CommandError, match="no allocator wrote events"):
        _ = block.data
    assert "this block: no allocator wrote events" in str(block)
