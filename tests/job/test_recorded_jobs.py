"""Jobs of an H200: replayed to every address, and forecast without the device."""

from __future__ import annotations

import json

import pytest

from hlomem.job.array_lines import ArrayLines
from hlomem.job.forecast import forecast, requests_of_log, smallest_pool
from hlomem.job.instant import Instant, LiveArray, is_of_pool
from hlomem.job.leaks import find_leaks
from hlomem.job.oom_verdict import diagnose_in
from hlomem.job.timeline import TimelineBuilder
from hlomem.report.oom.explanation import build_oom
from hlomem.report.oom.log import read_oom
from tests.job.recorded import (
    DEVICE,
    FORECAST,
    H200,
    RECORDED,
    figures,
    holdings_of,
    log_of,
    timeline_of,
    untuned_log_of,
)

VERDICTS = {
    "fragment": "fragmented",
    "oom_array": "arrays",
    "oom_arrays": "arrays",
    "oom_late": "arrays",
    "oom_program": "program",
    "oom_tuner": "autotuner",
    "regions": "regions",
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_twin_has_every_address_sum_and_pool_of_a_job(name: str) -> None:
    builder = timeline_of(f"h200/{name}")
    timeline = builder.build()
    end = figures()[name]["marks"][-1]
    assert timeline.is_exact
    assert timeline.twin_agrees == timeline.events
    assert timeline.pool == end["pool_bytes"]
    assert timeline.peak == end["peak_bytes_in_use"]
    assert builder.attribution(DEVICE).sums.unknown == 0
    assert timeline.pool_kind == ("taken at once" if name == "preallocated" else "grown")


@pytest.mark.parametrize("name", ["alternate.state", "leak.state", "serve.served_1024"])
def test_nine_tenths_of_a_peak_have_a_line_where_a_memory_profile_is_there(name: str) -> None:
    job = timeline_of(f"h200/{name.partition('.')[0]}")
    lines = ArrayLines(holdings_of(f"h200/{name}"))
    moment = TimelineBuilder("job", job.calls, job.programs, lines).build().moment
    assert moment.with_line >= 0.9 * moment.in_use


@pytest.mark.parametrize("name", FORECAST)
def test_a_forecast_without_a_device_is_what_the_device_did(name: str) -> None:
    """With the kernels that the autotuner chose on it; a host that runs ahead is bounded."""
    marks = figures()[name]["marks"]
    limit, end = marks[0]["bytes_limit"], marks[-1]
    found = forecast(requests_of_log(log_of(name)), limit, grows=name != "preallocated")
    real = end["peak_bytes_in_use"]
    assert abs(found.peak - real) <= 0.0001 * real
    assert found.pool == end["pool_bytes"]
    assert (found.failure is not None) == (name == "fragment")


@pytest.mark.parametrize("name", FORECAST)
def test_the_pool_of_a_forecast_ran_and_one_percent_less_died(name: str) -> None:
    """On the device, with programs from a cache, so that they are not compiled for the pool."""
    edges = json.loads((H200 / "edges.json").read_text())
    [edge] = [one for one in edges if one["job"] == name]
    assert edge["fits"] == []
    assert "RESOURCE_EXHAUSTED" in edge["under"][0]
    job = requests_of_log(untuned_log_of(name), tunes=False)
    assert smallest_pool(job, 1 << 37) == edge["forecast_pool"]
    assert edge["under_pool"] < edge["forecast_pool"]


@pytest.mark.parametrize("name", VERDICTS)
def test_errors_that_a_device_raised_get_their_verdict(name: str) -> None:
    [error] = figures()[name]["errors"]
    oom = build_oom(read_oom(error["text"]))
    assert oom is not None
    stats = error["stats"]
    arrays = [LiveArray(size=size, shape=shape, address=at) for size, shape, at in error["arrays"]]
    instant = Instant(
        device="cuda:0",
        arrays=tuple(array for array in arrays if is_of_pool(array.address or 0)),
        in_use=stats["bytes_in_use"],
        limit=stats["bytes_limit"],
        pool=stats["pool_bytes"],
        largest_free=stats["largest_free_block_bytes"],
        grows=True,
    )
    verdict = diagnose_in(oom, instant)
    assert verdict.kind == VERDICTS[name]
    assert sum(row.size for row in verdict.holders) <= stats["bytes_in_use"]


def test_a_leak_is_one_line() -> None:
    taken = [(name, holdings_of(f"h200/leak.{name}")) for name in ("step_1", "step_3", "step_5")]
    leaks = find_leaks(taken)
    assert {line.line.rpartition("/")[2] for line in leaks.grown} == {"recorded_jobs.py:305"}
    assert all(line.is_steady for line in leaks.grown)
    assert sum(line.size for line in leaks.grown) == 4 * (8 * 8 * 8000 * 4 + 4)
