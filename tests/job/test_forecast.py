"""Forecasts: a recorded job in another pool, and a job by its log and plans."""

from __future__ import annotations

from msgspec.structs import replace

from hlomem.job.attribution import attribute
from hlomem.job.forecast import forecast, requests_of_calls, requests_of_log, smallest_pool
from hlomem.job.log import (
    Compile,
    Drop,
    JobLog,
    Mark,
    Put,
    Result,
    Run,
    Wait,
    decode_log,
    encode_log,
)
from hlomem.job.plans import ProgramPlan, Request, Tuned
from hlomem.job.report import report_job
from tests.job.recorded import DEVICE, timeline_of

MIB = 1 << 20
STEP = ProgramPlan(
    name="step",
    requests=(
        Request(index=2, size=16, role="tuple table"),
        Request(index=3, size=4, role="result"),
        Request(index=4, size=100 * MIB, role="temporaries"),
    ),
    results=(0, 3),
    donated={0: 0, 1: 1},
    tuned=(Tuned(name="gemm", inputs=(8 * MIB,), outputs=(4 * MIB,), workspace=32 * MIB),),
)


def _job(steps: int = 3) -> JobLog:
    """A loop whose state is donated from step to step."""
    entries: list[object] = [Put(1, 40 * MIB, "f32[…]"), Compile("step")]
    state = 1
    for number in range(steps):
        batch, new, loss = 10 + 10 * number, 11 + 10 * number, 12 + 10 * number
        entries += [
            Put(batch, 10 * MIB),
            Run("step", (state, batch), (state,), (Result(new, 40 * MIB), Result(loss, 4))),
            Drop(batch),
            Wait(),
            Drop(loss),
            Mark(f"step {number}"),
        ]
        state = new
    return JobLog(name="job", entries=tuple(entries), programs={"step": STEP})  # type: ignore[arg-type]


def test_state_that_is_donated_is_held_once() -> None:
    found = forecast(requests_of_log(_job(), tunes=False), 1 << 40, grows=False)
    assert found.failure is None
    ends = dict(requests_of_log(_job(), tunes=False).curve(1 << 40))
    waits = [number for number, entry in enumerate(_job().entries) if isinstance(entry, Wait)]
    assert {ends[number] for number in waits} == {64 * MIB + 256}  # a whole region of the pool
    assert found.peak == 150 * MIB + 512
    assert sum(row.size for row in found.rows) == found.peak
    assert found.peak_at == "run 1 of step"


def test_the_smallest_pool_runs_and_less_does_not() -> None:
    job = requests_of_log(_job(), tunes=False)
    pool = smallest_pool(job, 1 << 40)
    assert pool is not None
    assert forecast(job, pool, grows=False).failure is None
    failed = forecast(job, pool - 2 * MIB, grows=False).failure
    assert failed is not None
    assert (failed.words, failed.size) == ("run 1 of step", 100 * MIB)


def test_the_autotuner_is_modelled_and_said_to_be() -> None:
    only_compiled = JobLog(name="job", entries=(Compile("step"),), programs={"step": STEP})
    found = forecast(requests_of_log(only_compiled), 1 << 40, grows=False)
    inputs, reference, guarded = (8 + 16) * MIB, 4 * MIB, (4 + 16) * MIB + (32 + 16) * MIB
    assert found.peak == inputs + reference + guarded
    assert any("autotuner" in words for words in found.modelled)
    assert forecast(requests_of_log(only_compiled, tunes=False), 1 << 40).peak == 0


def test_a_log_is_the_same_after_json() -> None:
    log = _job()
    assert decode_log(encode_log(log), "log") == log


def test_a_recorded_job_fits_just_the_pool_that_a_device_ran_it_in() -> None:
    """On the device it ran in this pool, and 2 MiB less ended in RESOURCE_EXHAUSTED."""
    job = requests_of_calls("serve", timeline_of("serve").attribution(DEVICE))
    assert forecast(job, 1 << 37, grows=False).smallest_pool == 4_951_375_872


def test_recorded_calls_give_the_recorded_pool_and_peak() -> None:
    for name in ("serve", "frag"):
        timeline = timeline_of(name).build()
        job = requests_of_calls(name, timeline_of(name).attribution(DEVICE))
        found = forecast(job, timeline.limit, grows=True)
        assert (found.peak, found.pool) == (timeline.peak, timeline.pool)


def test_the_largest_program_first_saves_a_pool_that_grows() -> None:
    big, small = (
        ProgramPlan(name=name, requests=(Request(index=0, size=size, role="temporaries"),))
        for name, size in (("big", 70 << 30), ("small", 33 << 30))
    )
    log = JobLog(
        name="order",
        entries=(Run("small", (), (), ()), Run("big", (), (), ())),
        programs={"big": big, "small": small},
    )
    report = report_job(requests_of_log(log), 105 << 30, grows=True)
    assert report.forecast.failure is not None
    assert report.forecast.failure.in_use == 0
    assert report.advice[0].startswith("it fits when big runs first")


def test_the_step_that_fails_is_told_in_words() -> None:
    """By what was asked for: an array, the compile of a program, or a run after a mark."""
    job = requests_of_log(_job())
    for limit, words in (
        (30 * MIB, "putting f32[…] on the device"),
        (90 * MIB, "compiling step"),
    ):
        failed = forecast(job, limit, grows=False).failure
        assert failed is not None
        assert failed.words == words
    log = _job()
    last = max(number for number, entry in enumerate(log.entries) if isinstance(entry, Run))
    assert job.words(last) == "run 3 of step, after `step 1`"
    assert job.words(last + 1) == f"entry {last + 1}, after `step 1`"
    assert requests_of_log(JobLog(name="none", entries=(), programs={})).words(0) == ""


def test_a_recorded_call_is_told_in_words() -> None:
    job = requests_of_calls("serve", timeline_of("serve").attribution(DEVICE))
    words = {job.words(request.entry).partition(" ")[0] for request in job.requests}
    assert words >= {"a", "tuning", "putting"}


def test_what_a_trace_did_not_see_is_said() -> None:
    found = timeline_of("serve").attribution(DEVICE)
    late = attribute(DEVICE, found.calls[200:], timeline_of("serve").programs)
    [note] = requests_of_calls("late", late).notes
    assert "were in use before the trace began" in note


def test_results_without_a_known_allocation_take_one_of_their_size() -> None:
    """A result that no one reads goes back at once, as does a donated array that none replaces."""
    plan = replace(
        STEP, results=(), requests=(*STEP.requests, Request(index=5, size=8 * MIB, role="result"))
    )
    run = Run("step", (1,), (1,), (Result(2, 4),))
    log = JobLog(name="job", entries=(Put(1, MIB), run), programs={"step": plan})
    job = requests_of_log(log, tunes=False)
    freed = {request.key for request in job.requests if request.size is None}
    kept = [request.size for request in job.requests if request.key not in freed]
    assert kept == [4]


def test_a_pool_that_is_too_small_however_large_has_no_smallest() -> None:
    assert smallest_pool(requests_of_log(_job()), MIB) is None


def test_a_warm_cache_is_advised_where_tuning_takes_most() -> None:
    tuned = (Tuned(name="gemm", inputs=(800 * MIB,), outputs=(MIB,), workspace=0),)
    log = replace(_job(), programs={"step": replace(STEP, tuned=tuned)})
    report = report_job(requests_of_log(log), 1 << 40, grows=True)
    assert any("warm compilation cache" in advice for advice in report.advice)
    report = report_job(requests_of_log(log), 600 * MIB, grows=True)
    assert any("(does not fit else)" in advice for advice in report.advice)


def test_where_the_allocator_is_not_known_sums_stand_for_it() -> None:
    log = replace(_job(), has_bfc=False, platform="tpu")
    found = forecast(requests_of_log(log, tunes=False), 1 << 30)
    assert found.is_summed
    assert found.peak == 150 * MIB + 20
    assert any("TPU" in words for words in found.modelled)
