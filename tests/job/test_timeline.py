"""Recorded jobs: sums, peak and addresses are the allocator's own, and every byte has an owner."""

from __future__ import annotations

import pytest

from hlomem.base.errors import CommandError
from hlomem.job import attribution as owners
from hlomem.job.array_lines import ArrayLines
from hlomem.job.events import Calls
from hlomem.job.owner_rows import FROM_HOST
from hlomem.job.timeline import TimelineBuilder
from tests.job.recorded import DEVICE, PROFILES, holdings_of, timeline_of


@pytest.mark.parametrize("name", PROFILES)
def test_sums_and_peak_are_the_allocators_own_at_every_event(name: str) -> None:
    found = timeline_of(name).attribution(DEVICE)
    assert found.sums.wrong_in_use == found.sums.wrong_peak == 0
    assert found.sums.unknown == 0
    timeline = timeline_of(name).build()
    assert timeline.is_exact
    assert timeline.peak == max(call.peak for call in found.calls)


@pytest.mark.parametrize("name", PROFILES)
def test_the_twin_gives_every_address(name: str) -> None:
    timeline = timeline_of(name).build()
    assert (timeline.pool_kind, timeline.twin_agrees) == ("grown", timeline.events)


def test_pools_are_those_the_devices_said() -> None:
    assert timeline_of("serve").build().pool == 8_858_370_048
    assert timeline_of("frag").build().pool == 8_589_934_592


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 1.0])
def test_rows_add_up_at_any_time(name: str, share: float) -> None:
    whole = timeline_of(name).build()
    at = whole.start + share * (whole.end - whole.start)
    moment = timeline_of(name).build(at=repr(at)).moment
    assert sum(row.size for row in moment.rows) == moment.in_use


def test_a_program_is_joined_to_its_plan_and_lines() -> None:
    moment = timeline_of("serve").build().moment
    temporaries = [row for row in moment.rows if row.owner == owners.TEMPORARIES]
    assert {row.name for row in temporaries} == {"jit_fwd"}
    assert sum(row.size for row in temporaries) == 3_103_786_816
    assert temporaries[0].line == "/home/me/jobs.py:216"


def test_the_autotuner_is_told_from_programs() -> None:
    holdings = timeline_of("serve").attribution(DEVICE).holdings
    tuned = {one.name for one in holdings if one.owner == owners.TUNING}
    assert "gemm_fusion_dot.5" in tuned
    assert {one.owner for one in holdings} == {
        *(owners.TUNING, owners.TEMPORARIES, owners.RESULT, owners.TABLE, FROM_HOST),
    }


def test_a_trace_that_began_late_says_what_it_cannot_know() -> None:
    calls = timeline_of("frag").calls
    late = Calls(calls.calls[60:], calls.executions, ())
    timeline = TimelineBuilder("late", late, timeline_of("frag").programs).build(at="peak")
    assert timeline.older == calls.calls[59].in_use
    assert timeline.is_exact
    assert timeline.pool is None
    assert any("when the trace began" in note for note in timeline.notes)
    assert sum(row.size for row in timeline.moment.rows) == timeline.moment.in_use


def test_a_memory_profile_names_older_arrays() -> None:
    calls = timeline_of("frag").calls
    late = Calls(calls.calls[56:], calls.executions, ())
    lines = ArrayLines(holdings_of("frag.filled"))
    builder = TimelineBuilder("late", late, timeline_of("frag").programs, lines)
    rows = builder.build().moment.rows
    assert {row.line for row in rows if row.owner == owners.OLDER} == {"/home/me/jobs.py:81"}


def test_wrong_times_and_allocators_are_refused() -> None:
    with pytest.raises(CommandError, match="no time in seconds"):
        timeline_of("frag").build(at="soon")
    with pytest.raises(CommandError, match="the first event is at"):
        timeline_of("frag").build(at="-1")
    with pytest.raises(CommandError, match="there are GPU_0_bfc"):
        timeline_of("frag").build("GPU_9_bfc")
