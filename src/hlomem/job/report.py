"""The answer about a whole job: its forecast, and what would make it smaller.

In: the requests of a job, a pool and the size of the device. Out: `JobReport`. Advice is tried with
the twin: the program that asks for most before all others, a pool taken at once, a warm cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record
from hlomem.job.bfc import BfcAllocator
from hlomem.job.forecast import Forecast, Request, forecast, pool_for, without_tuner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.job.forecast import JobRequests

_WORTH_SAYING = 0.01


class JobReport(Record, frozen=True, kw_only=True):
    """A job in a pool."""

    forecast: Forecast
    fraction: float | None
    """The share of the device that the smallest pool is; None where the device is not known."""
    advice: tuple[str, ...]


class Largest(Record, frozen=True, kw_only=True):
    """The largest value of a setting with which a job fits."""

    name: str
    """The job."""
    setting: str
    value: int
    """0 where none fits."""
    refused: int | None
    """The next that does not."""
    is_proven: bool
    """Whether both were forecast, and nothing lies between them."""
    limit: int
    tried: dict[int, int]
    """By value the smallest pool."""


def report_job(
    job: JobRequests,
    limit: int,
    *,
    grows: bool = True,
    device: int | None = None,
) -> JobReport:
    """The forecast of a job, and advice that was tried."""
    found = forecast(job, limit, grows=grows)
    pool = found.smallest_pool
    return JobReport(
        forecast=found,
        fraction=pool / device if pool is not None and device else None,
        advice=tuple(_advice(job, found, limit, grows)),
    )


def _advice(job: JobRequests, found: Forecast, limit: int, grows: bool) -> Iterator[str]:
    if job.is_summed:
        return
    warm = without_tuner(job.requests)
    if grows:
        yield from _about_order(job.requests, found, limit)
    if len(warm) < len(job.requests):
        cold = pool_for(job.requests, BfcAllocator(limit, grows=grows))
        cached = pool_for(warm, BfcAllocator(limit, grows=grows))
        if cached is not None and (cold is None or cached < (1 - _WORTH_SAYING) * cold):
            now = "does not fit" if cold is None else format_bytes(cold)
            yield (
                f"programs from a warm compilation cache are not tuned: the pool becomes"
                f" {format_bytes(cached)} ({now} else)"
            )


def _about_order(requests: Sequence[Request], found: Forecast, limit: int) -> Iterator[str]:
    """The program that asks for most, run before all others while the pool is empty."""
    sizes = [(one.size, one.name) for one in requests if one.size is not None and one.name]
    if not sizes:
        return
    largest, name = max(sizes)
    first = [Request(0, -1, largest, "", name), Request(0, -1, None)]
    pool = pool_for([*first, *requests], BfcAllocator(limit))
    if pool is None:
        return
    if found.failure is not None:
        yield (
            f"it fits when {name} runs first, which asks for {format_bytes(largest)} at once:"
            f" regions of a pool that grows never merge; the pool becomes {format_bytes(pool)}"
        )
    elif pool < (1 - _WORTH_SAYING) * found.pool:
        yield f"with {name} first the pool that grows becomes {format_bytes(pool)}"
