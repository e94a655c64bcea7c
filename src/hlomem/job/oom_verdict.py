"""The verdict on an out-of-memory error, by the state of the device and the program that asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.job.instant import build_now
from hlomem.report.oom.explanation import situation_of
from hlomem.report.oom.verdict import diagnose

if TYPE_CHECKING:
    from hlomem.job.instant import Instant
    from hlomem.job.plans import PlannedProgram
    from hlomem.report.oom.explanation import Oom
    from hlomem.report.oom.verdict import Verdict


def diagnose_in(
    oom: Oom, instant: Instant, program: PlannedProgram | None = None, fraction: float | None = None
) -> Verdict:
    """Why memory ran out, by the state of the device then and the program that asked."""
    table = build_now(instant)
    known = situation_of(oom.failure, oom.log)
    here = replace(
        known,
        limit=instant.limit or known.limit,
        in_use=instant.in_use if instant.in_use is not None else known.in_use,
        pool=instant.pool,
        largest_free=instant.largest_free,
        grows=instant.grows,
        rows=table.rows if instant.in_use is not None else (),
        arrays=instant.arrays,
        ownerless=table.other,
        fraction=fraction,
        program="",
    )
    if program is not None:
        here = replace(
            here,
            program=program.name.removeprefix("jit_"),
            asks=program.plan.asks,
            results=program.plan.asks - program.plan.temporaries,
            arguments=sum(program.plan.arguments.values()),
        )
    return diagnose(here)
