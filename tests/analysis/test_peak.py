"""The peak against a slow and obvious count, over programs XLA planned."""

from __future__ import annotations

import pytest

from hlomem.analysis.peak import find_peak
from hlomem.hlo.padding import unpadded_size
from hlomem.hlo.text.parser import parse
from hlomem.pipeline import Stages, run_stages, start_stages
from tests.analysis.programs import CONDITIONAL, DONATE_SWAP
from tests.analysis.test_dataflow import ASYNC_SLICE, LOOP


def bytes_at(stages: Stages, time: int) -> int:
    """The bytes XLA counts at a time, at which values of the time before still count."""
    return sum(
        unpadded_size(value.instruction.shape)
        for value, (start, end) in stages.live_ranges.range_of.items()
        if start <= time <= end + 1
    )


@pytest.mark.parametrize("text", [DONATE_SWAP, CONDITIONAL, LOOP, ASYNC_SLICE])
def test_the_peak_is_the_first_time_with_most_bytes(text: str) -> None:
    stages = run_stages(parse(text))
    counts = [bytes_at(stages, time) for time in range(stages.live_ranges.end + 2)]
    peak = find_peak(stages.live_ranges)
    assert peak is not None
    assert (peak.time, peak.size) == (counts.index(max(counts)), max(counts))


def test_a_shape_without_a_size_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    # Such a program is not planned, but XLA's own plan of it may be read from a proto.
    monkeypatch.setattr("hlomem.pipeline.verify_module", lambda _: None)
    text = DONATE_SWAP.replace("f32[300,300]", "f32[?,300]")
    assert find_peak(start_stages(parse(text)).live_ranges) is None
