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

__version__ = "0.1.0.dev0"

__all__ = [
    "Buffer",
    "Dump",
    "HlomemError",
    "Packing",
    "ParseError",
    "Plan",
    "Verdict",
    "__version__",
    "advise",
    "diff",
    "explain",
    "load",
    "pack",
    "plan",
    "read_oom",
    "replan",
    "verify",
]

if TYPE_CHECKING:
    from hlomem.advising import advise
    from hlomem.check.findings import Verdict
    from hlomem.check.verify import verify
    from hlomem.dump.dump import Dump
    from hlomem.errors import HlomemError, ParseError
    from hlomem.explaining import explain
    from hlomem.inputs import load
    from hlomem.packer.buffers import Buffer, Packing
    from hlomem.packing import pack
    from hlomem.planning import Plan, plan
    from hlomem.replanning import replan
    from hlomem.report.diff import diff
    from hlomem.report.oom_log import read_oom

_HOME = {
    "Buffer": "hlomem.packer.buffers",
    "Dump": "hlomem.dump.dump",
    "HlomemError": "hlomem.errors",
    "Packing": "hlomem.packer.buffers",
    "ParseError": "hlomem.errors",
    "Plan": "hlomem.planning",
    "Verdict": "hlomem.check.findings",
    "advise": "hlomem.advising",
    "diff": "hlomem.report.diff",
    "explain": "hlomem.explaining",
    "load": "hlomem.inputs",
    "pack": "hlomem.packing",
    "plan": "hlomem.planning",
    "read_oom": "hlomem.report.oom_log",
    "replan": "hlomem.replanning",
    "verify": "hlomem.check.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
