"""Jobs opened by name, and the largest value of a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.api.job_forecast import find_largest, open_job
from hlomem.job.log import JobLog, Run
from hlomem.job.plans import ProgramPlan, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB = 1 << 20


def _rehearse(_: str, __: str, settings: Mapping[str, Any]) -> JobLog:
    size = settings.get("width", 1) * settings.get("batch", 1) * MIB
    plan = ProgramPlan(name="step", requests=(Request(index=0, size=size, role="temporaries"),))
    run = Run("step", (), (), ())
    return JobLog(name="job", entries=(run,), programs={"step": plan}, has_bfc=False)


def test_the_largest_value_is_found_with_the_other_settings_as_given() -> None:
    job = open_job("train.py:train", "cpu", {"width": 4}, _rehearse)
    found = find_largest(job, "batch", 1, 42 * MIB)
    assert (found.value, found.refused, found.is_proven) == (10, 11, True)
