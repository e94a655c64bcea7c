"""`hlomem.shard`: how a program's arrays are split over devices, and what is there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.api.opening import Subject, open_memory
from hlomem.report.data.lookup import find_space
from hlomem.report.data.shard import ShardReport, report_on
from hlomem.report.data.sharding.gather_findings import partitioner_warnings
from hlomem.report.data.sharding.subject import Subject as ShardedSubject

if TYPE_CHECKING:
    from hlomem.machines.machine import Machine
    from hlomem.report.data.memory import MemoryView


def shard(
    subject: Subject,
    *,
    module: str | None = None,
    machine: Machine | None = None,
    space: str | None = None,
    log: str = "",
) -> ShardReport:
    """The shardings of a dump's program; `log` is a text with the partitioner's warnings.

    Whole shapes and shardings are those of XLA's `*before_optimizations.txt` next to the dump.
    """
    memory = open_memory(subject, module=module, backend=machine or "")
    return shard_memory(memory, space=space, log=log)


def shard_memory(memory: MemoryView, *, space: str | None = None, log: str = "") -> ShardReport:
    """The same of a memory that is open."""
    warnings = partitioner_warnings(log)
    return report_on(ShardedSubject(memory, find_space(memory, space), warnings=warnings))
