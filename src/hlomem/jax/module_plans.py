"""A compiler's plan for a module as the pass has it: bytes of temporaries, by trying.

In: a scheduled `HloModuleProto` and the target it is compiled for. Out: the bytes of temporaries in
the target's main memory, as its compiler plans them. A child process compiles a stand-in for it
(`hlomem.jax.stand_in`) and is stopped when the plan is there.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hlomem.assign.footprint import footprint
from hlomem.jax.jobs import Job
from hlomem.jax.plan_only import CompileError, plan_in_child
from hlomem.jax.stand_in import FACTORY

if TYPE_CHECKING:
    from hlomem.dump.dump import Dump

MAX_SECONDS = 120.0
"""How long one plan may take."""


def plan_module(proto: bytes, target: str, platform: str, timeout: float = MAX_SECONDS) -> Dump:
    """The compiler's plan of a module in the order it has."""
    with TemporaryDirectory(prefix="hlomem-") as folder:
        file = Path(folder) / "module.pb"
        file.write_bytes(proto)
        settings = {"module": str(file), "platform": platform}
        job = Job(factory=FACTORY, target=target, settings=settings)
        return plan_in_child(job, timeout=timeout).dump


def temporaries_of(dump: Dump) -> int:
    """Bytes of temporaries in main memory; an error where the dump does not list them."""
    if dump.assignment is None:
        raise CompileError("the compiler left no list of its allocations")
    allocations = dump.assignment.allocations
    return footprint([held for held in allocations if held.is_preallocated_temp])


def planned_bytes(target: str, platform: str, proto: bytes) -> int:
    """Bytes of temporaries a target's compiler plans for a module in the order it has."""
    return temporaries_of(plan_module(proto, target, platform))
