"""Reads, plans, proves and explains where XLA puts every tensor of a program.

    dump = hlomem.load("xla_dump/")
    dump.assignment.allocations[0].size
    plan = hlomem.plan(open("module.hlo").read(), backend="cpu")
    print(plan.dump)
    hlomem.verify(plan.dump, module=plan.stages.module).findings
    print(hlomem.explain(plan))

The names below are imported when first used, so that `import hlomem` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

__all__ = [
    "AdviceReport",
    "Buffer",
    "BufferExplanation",
    "Diff",
    "Dump",
    "HlomemError",
    "MemoryExplanation",
    "OomLog",
    "Packing",
    "ParseError",
    "Plan",
    "ScaledProgram",
    "ShardReport",
    "Verdict",
    "__version__",
    "advise",
    "diff",
    "explain",
    "improve",
    "load",
    "pack",
    "plan",
    "read_oom",
    "replan",
    "scale",
    "shard",
    "to_dicts",
    "to_pandas",
    "verify",
]

if TYPE_CHECKING:
    from hlomem.api.advise import advise
    from hlomem.api.diff import diff
    from hlomem.api.explain import BufferExplanation, MemoryExplanation, explain
    from hlomem.api.improve import improve
    from hlomem.api.load import load
    from hlomem.api.pack import pack
    from hlomem.api.plan import Plan, plan
    from hlomem.api.replan import replan
    from hlomem.api.scale import ScaledProgram, scale
    from hlomem.api.shard import shard
    from hlomem.api.tables import to_dicts, to_pandas
    from hlomem.base.errors import HlomemError, ParseError
    from hlomem.check.findings import Verdict
    from hlomem.check.verify import verify
    from hlomem.dump.dump import Dump
    from hlomem.packer.buffers import Buffer, Packing
    from hlomem.report.data.advice import AdviceReport
    from hlomem.report.data.diff import Diff
    from hlomem.report.data.shard import ShardReport
    from hlomem.report.oom.log import OomLog, read_oom

_HOME = {
    "AdviceReport": "hlomem.report.data.advice",
    "Buffer": "hlomem.packer.buffers",
    "BufferExplanation": "hlomem.api.explain",
    "Diff": "hlomem.report.data.diff",
    "Dump": "hlomem.dump.dump",
    "HlomemError": "hlomem.base.errors",
    "MemoryExplanation": "hlomem.api.explain",
    "OomLog": "hlomem.report.oom.log",
    "Packing": "hlomem.packer.buffers",
    "ParseError": "hlomem.base.errors",
    "Plan": "hlomem.api.plan",
    "ScaledProgram": "hlomem.api.scale",
    "ShardReport": "hlomem.report.data.shard",
    "Verdict": "hlomem.check.findings",
    "advise": "hlomem.api.advise",
    "diff": "hlomem.api.diff",
    "explain": "hlomem.api.explain",
    "improve": "hlomem.api.improve",
    "load": "hlomem.api.load",
    "pack": "hlomem.api.pack",
    "plan": "hlomem.api.plan",
    "read_oom": "hlomem.report.oom.log",
    "replan": "hlomem.api.replan",
    "scale": "hlomem.api.scale",
    "shard": "hlomem.api.shard",
    "to_dicts": "hlomem.api.tables",
    "to_pandas": "hlomem.api.tables",
    "verify": "hlomem.check.verify",
}
_PACKAGES = frozenset(
    [
        "advice",
        "analysis",
        "api",
        "assign",
        "base",
        "check",
        "dump",
        "fleet",
        "hlo",
        "machines",
        "pipeline",
        "rebuild",
        "report",
        "view",
        "write",
    ]
)
"""Packages reached without an import: `hlomem.hlo.parse`, `hlomem.machines.registry.MACHINES`."""


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"hlomem.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
