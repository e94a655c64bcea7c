"""Profiles: events thread by thread, cut and damaged files included."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.base.errors import HlomemError, InputError
from hlomem.job.events import read_calls
from hlomem.proto.pprof import read_pprof
from hlomem.proto.profile import HOST, Profile
from tests.job.recorded import JOBS, profile_bytes


def test_events_nest_and_state_facts() -> None:
    plane = Profile(profile_bytes("frag"), "frag").plane(HOST)
    assert plane is not None
    threads = list(plane.threads())
    events = [event for thread in threads for event in thread.events]
    [first, *_] = [event for event in events if event.name == "MemoryAllocation"]
    facts = plane.facts(first)
    assert facts["allocator_name"] == "GPU_0_bfc"
    assert facts["requested_bytes"] == 128 << 20
    for thread in threads:
        assert thread.events == sorted(thread.events, key=lambda event: (event.start, -event.end))


def test_a_profile_cut_after_its_host_is_read_and_says_so() -> None:
    data = profile_bytes("frag")
    calls = read_calls(Profile(data + b"\x0a\xff\x7f", "cut"))
    assert len(calls.calls) == 116
    assert calls.notes == ("the profile is cut off: its end is missing",)


@given(st.integers(0, 40_000))
def test_cut_profiles_are_refused_in_words(size: int) -> None:
    data = profile_bytes("frag")
    size %= len(data)
    with pytest.raises(InputError, match="cut"):
        read_calls(Profile(data[:size], "cut"))


@given(st.integers(0, 1 << 20), st.integers(0, 255))
def test_damaged_profiles_end_in_an_answer_or_in_an_error_of_ours(place: int, value: int) -> None:
    data = bytearray(profile_bytes("frag"))
    data[place % len(data)] = value
    with suppress(HlomemError):
        assert len(read_calls(Profile(bytes(data), "damaged")).calls) <= 2 * len(data)


@given(st.integers(0, 1 << 16), st.integers(0, 255))
def test_damaged_memory_profiles_end_in_an_answer_or_in_an_error_of_ours(
    place: int, value: int
) -> None:
    data = bytearray((JOBS / "frag.end.prof").read_bytes())
    data[place % len(data)] = value
    with suppress(InputError):
        assert len(read_pprof(bytes(data), "damaged")) < len(data)
