"""The twin beside a recorded allocator: it stops where they differ."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hlomem.job.events import Call
from hlomem.job.replay import replay
from tests.job.recorded import DEVICE, timeline_of

AT = 40


@pytest.fixture
def calls() -> list[Call]:
    return list(timeline_of("serve").attribution(DEVICE).calls)


def _agrees(calls: list[Call]) -> int:
    found = replay(calls)
    assert found is not None
    return len(found.states)


def test_a_trace_that_began_late_is_not_replayed(calls: list[Call]) -> None:
    assert replay([]) is None
    assert replay(calls[1:]) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"address": 1 << 50},
        {"size": 1},
        {"in_use": 1},
        {"peak": 1},
        {"fragmentation": 0.5},
        {"asked": 1 << 50},
    ],
    ids=str,
)
def test_it_agrees_up_to_the_first_other_figure(calls: list[Call], changed: dict[str, Any]) -> None:
    at = next(number for number in range(AT, len(calls)) if not calls[number].is_free)
    calls[at] = replace(calls[at], **changed)
    assert _agrees(calls) == at


def test_what_is_freed_must_have_been_given(calls: list[Call]) -> None:
    at = next(number for number in range(AT, len(calls)) if calls[number].is_free)
    calls[at] = replace(calls[at], address=1 << 50)
    assert _agrees(calls) == at
