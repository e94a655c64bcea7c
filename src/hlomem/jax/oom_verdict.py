"""Why memory ran out in this process: the verdict on an error, by what is on the device now.

In: an out-of-memory error that was read, and the program it is of where one is known. Out: one of
five verdicts (`hlomem.report.oom.verdict`), with the arrays that hold the memory by line. Memory
that the error gave back on its way is not in use any more; all that the program would ask for is in
its plan.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.jax.instants import instant_of
from hlomem.job.oom_verdict import diagnose_in

if TYPE_CHECKING:
    from hlomem.jax.compiled_programs import CompiledProgram
    from hlomem.report.oom.explanation import Oom
    from hlomem.report.oom.verdict import Verdict

_ALLOCATOR = re.compile(r"GPU_(\d{1,4})_bfc")


def diagnose_now(oom: Oom, program: CompiledProgram | None) -> Verdict:
    """The verdict, with all that this process knows."""
    instant = instant_of(_device_of(oom.failure.space))
    return diagnose_in(oom, instant, None if program is None else program.planned, _fraction())


def _device_of(space: str) -> Any:
    """The device whose allocator failed; the first where the error does not say."""
    found = _ALLOCATOR.search(space)
    devices = import_module("jax").local_devices()
    if found is None:
        return devices[0]
    ordinal = int(found[1])
    named = [one for one in devices if getattr(one, "local_hardware_id", None) == ordinal]
    return (named or devices)[0]


def _fraction() -> float | None:
    """The share of the device that the user gave to the pool."""
    try:
        return float(os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"])
    except (KeyError, ValueError):
        return None
