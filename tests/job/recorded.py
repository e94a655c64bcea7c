"""Recorded jobs, opened once."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from hlomem.api.job_inputs import open_timeline
from hlomem.job.log import decode_log
from hlomem.job.plans import ProgramPlan
from hlomem.proto.pprof import read_pprof
from tests.places import GOLDENS

if TYPE_CHECKING:
    from hlomem.job.log import JobLog
    from hlomem.job.timeline import TimelineBuilder
    from hlomem.proto.pprof import Holding

JOBS = GOLDENS / "jobs"
H200 = JOBS / "h200"
PROFILES = ("frag", "serve")
DEVICE = "GPU_0_bfc"
FORECAST = (
    "accumulate", "ahead", "alternate", "evaluate", "fragment", "leak", "preallocated", "restore",
    "results", "serve", "shapes", "train",
)  # fmt: skip
"""Jobs that were forecast without a device."""
FAILED = ("oom_array", "oom_arrays", "oom_late", "oom_program", "oom_tuner", "regions")
RECORDED = (*FORECAST, *FAILED, "eager")


@cache
def timeline_of(name: str) -> TimelineBuilder:
    """The allocators of a recorded job."""
    return open_timeline(JOBS / f"{name}.xplane.pb.gz")


@cache
def figures() -> dict[str, Any]:
    """By job the allocator's figures at its marks, and its errors."""
    content: dict[str, Any] = json.loads(gzip.decompress((H200 / "figures.json.gz").read_bytes()))
    return content


def log_of(name: str) -> JobLog:
    """The log of a job that was rehearsed without a device."""
    return decode_log(gzip.decompress((H200 / f"{name}.log.json.gz").read_bytes()), name)


def untuned_log_of(name: str) -> JobLog:
    """The same with programs that are compiled with --xla_gpu_autotune_level=0."""
    data = gzip.decompress((H200 / "untuned_plans.json.gz").read_bytes())
    plans = msgspec.json.decode(data, type=dict[str, dict[str, ProgramPlan]])
    return replace(log_of(name), programs=plans[name])


@cache
def profile_bytes(name: str) -> bytes:
    """The bytes of a recorded profile, unpacked."""
    return gzip.decompress((JOBS / f"{name}.xplane.pb.gz").read_bytes())


@cache
def holdings_of(name: str) -> tuple[Holding, ...]:
    """The arrays of a device memory profile."""
    return tuple(read_pprof((JOBS / f"{name}.prof").read_bytes(), name))
