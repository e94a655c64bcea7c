"""A lower limit of scoped VMEM for a program, with libtpu's plan before and after.

Recipes set `xla_tpu_scoped_vmem_limit_kib` for all of a program. No kernel or fusion may use more,
and memory-space assignment gets what is left of VMEM, whether or not the limit is used up. In: a
job, and the limit in `LIBTPU_INIT_ARGS`. Out: advice, where a lower limit does for its kernels.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.base.sizes import format_bytes
from hlomem.jax.compile.parent import plan_in_child
from hlomem.report.data.advice import Advice
from hlomem.report.data.scoped import build_scoped, lower_limit
from hlomem.view.scoped import LIMIT_FLAG

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.jax.compile.messages import Job
    from hlomem.jax.compile.parent import PlannedProgram

RULE = "scoped"
LINK = "docs/kernels.md#the-limit-of-a-whole-program"
_VARIABLE = "LIBTPU_INIT_ARGS"
_COST = "fusions that XLA tiles for the limit may get smaller tiles"


def flag_limit() -> int | None:
    """Bytes of scoped VMEM that the environment allows each kernel; None if it does not say."""
    for word in os.environ.get(_VARIABLE, "").split():
        name, _, value = word.lstrip("-").partition("=")
        if name == LIMIT_FLAG and value.isdecimal() and len(value) < 12:
            return int(value) * 1024
    return None


def advise_limit(
    job: Job, timeout: float | None, on_progress: Callable[[str], None] = lambda _: None
) -> Advice | None:
    """Advice to lower the limit in the environment; None if there is none, or all of it is used.

    The program is compiled whole twice: only then are the uses of its kernels known, and only then
    is it known that libtpu accepts it with less.
    """
    limit = flag_limit()
    if limit is None:
        return None
    before = plan_in_child(job, timeout=timeout, is_full=True, on_progress=on_progress)
    scoped = build_scoped(before.memory.memory)
    lower = None if scoped is None else lower_limit(scoped, before.target.machine.chip)
    if lower is None:
        return None
    after = plan_in_child(
        replace(job, options={**job.options, LIMIT_FLAG: str(lower // 1024)}),
        timeout=timeout,
        is_full=True,
        on_progress=on_progress,
    )
    if after.refusal and not before.refusal:
        return None
    if _sizes(before) == _sizes(after):  # VMEM is not short, whatever the limit
        return None
    return _advice(before, after, limit, lower)


def vmem_planned(planned: PlannedProgram) -> int:
    """Bytes of VMEM that a plan gives to values between kernels."""
    spaces = {space.name: space.size for space in planned.memory.memory.spaces}
    return spaces.get("vmem", 0)


def _sizes(planned: PlannedProgram) -> tuple[int, int]:
    return planned.memory.space.size, vmem_planned(planned)


def _advice(before: PlannedProgram, after: PlannedProgram, limit: int, lower: int) -> Advice:
    was, is_now = (format_bytes(vmem_planned(one)) for one in (before, after))
    more = format_bytes(limit - lower)
    got = before.memory.space.size - after.memory.space.size
    cost = f"{_COST}; {format_bytes(-got)} more of HBM" if got < 0 else _COST
    words = f"lower {LIMIT_FLAG} from {limit // 1024} to {lower // 1024}: {more} more of VMEM for"
    return Advice(
        rule=RULE,
        title=f"{words} memory-space assignment, which plans {is_now} instead of {was}",
        got=got,
        method="compiled",
        confidence="high",
        cost=cost,
        how=f'{_VARIABLE}="--{LIMIT_FLAG}={lower // 1024}"',
        link=LINK,
    )
