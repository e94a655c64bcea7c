"""`hlomem job` in Python: a job in whatever form, and its memory in a pool.

In: `file.py:job`, the path of a log or of a profile. Out: `OpenedJob`, which reports on any pool,
and the largest value of a setting with which the job fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.api.fit_search import Planned, next_value, straddle
from hlomem.api.job_inputs import profile_in, timeline_of
from hlomem.api.load import read_bytes
from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.job.forecast import requests_of_calls, requests_of_log
from hlomem.job.log import decode_log
from hlomem.job.report import Largest, report_job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.job.forecast import JobRequests
    from hlomem.job.log import JobLog
    from hlomem.job.report import JobReport
    from hlomem.job.timeline import TimelineBuilder

_MAX_PLANS = 12


class OpenedJob(NamedTuple):
    """A job whose memory can be forecast."""

    name: str
    log: JobLog | None
    timeline: TimelineBuilder | None
    device: int | None
    """Bytes of the device, where the target says."""
    limit: int | None
    """The limit of the pool it was recorded in."""
    default_fraction: float
    rehearse: Callable[[Mapping[str, Any]], JobLog] | None = None

    def requests(self, *, tunes: bool = True) -> JobRequests:
        """Every call of the allocator."""
        if self.log is not None:
            return requests_of_log(self.log, tunes=tunes)
        assert self.timeline is not None
        chosen = self.timeline.build().allocator
        return requests_of_calls(self.name, self.timeline.attribution(chosen))

    def report(self, limit: int, *, grows: bool = False, tunes: bool = True) -> JobReport:
        """The job in a pool."""
        return report_job(self.requests(tunes=tunes), limit, grows=grows, device=self.device)


def open_job(
    subject: str,
    target: str = "",
    settings: Mapping[str, Any] | None = None,
    rehearse: Callable[[str, str, Mapping[str, Any]], JobLog] | None = None,
) -> OpenedJob:
    """A job by what a user names; `rehearse` makes the log of a function for a target."""
    place, colon, _ = subject.rpartition(":")
    if rehearse is not None and colon and place.endswith(".py"):
        given = settings or {}
        log = rehearse(subject, target, given)

        def again(changed: Mapping[str, Any]) -> JobLog:
            return rehearse(subject, target, {**given, **changed})

        return OpenedJob(log.name, log, None, log.device, None, log.pool_share, again)
    if settings:
        raise CommandError("`--set` goes with a function: file.py:job")
    file = profile_in(subject)
    data = read_bytes(file)
    if data.lstrip()[:1] == b"{":
        log = decode_log(data, str(file))
        return OpenedJob(log.name, log, None, log.device, None, log.pool_share)
    builder = timeline_of(data, visible(str(file)))
    limit = builder.build().limit if builder.allocators else None
    return OpenedJob(builder.name, None, builder, None, limit, 1.0)


def find_largest(
    job: OpenedJob,
    setting: str,
    step: int,
    limit: int,
    say: Callable[[str], None] = lambda _: None,
    *,
    grows: bool = False,
    tunes: bool = True,
) -> Largest:
    """The largest value of a setting with which a job fits a pool, proven by its neighbour."""
    if job.rehearse is None:
        raise CommandError("`--largest` goes with a function: file.py:job")
    seen: dict[int, Planned] = {}
    while len(seen) < _MAX_PLANS:
        value = next_value(seen, limit, step)
        if value is None or value in seen:
            break
        say(f"{setting}={value}")
        tried = job._replace(log=job.rehearse({setting: value}))
        found = tried.report(limit, grows=grows, tunes=tunes).forecast
        seen[value] = Planned(found.smallest_pool or limit << 6, found.failure is None)
    low, high = straddle(seen)
    return Largest(
        name=job.name,
        setting=setting,
        value=low,
        refused=high,
        is_proven=straddle(seen).is_closed(step),
        limit=limit,
        tried={value: plan.size for value, plan in sorted(seen.items())},
    )
