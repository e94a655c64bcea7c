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
    from hlomem.advice.advising import advise
    from hlomem.api.explain import explain
    from hlomem.api.load import load
    from hlomem.api.pack import pack
    from hlomem.api.plan import Plan, plan
    from hlomem.api.replan import replan
    from hlomem.base.errors import HlomemError, ParseError
    from hlomem.check.findings import Verdict
    from hlomem.check.verify import verify
    from hlomem.dump.dump import Dump
    from hlomem.packer.buffers import Buffer, Packing
    from hlomem.report.data.diff import diff
    from hlomem.report.oom.log import read_oom

_HOME = {
    "Buffer": "hlomem.packer.buffers",
    "Dump": "hlomem.dump.dump",
    "HlomemError": "hlomem.base.errors",
    "Packing": "hlomem.packer.buffers",
    "ParseError": "hlomem.base.errors",
    "Plan": "hlomem.api.plan",
    "Verdict": "hlomem.check.findings",
    "advise": "hlomem.advice.advising",
    "diff": "hlomem.report.data.diff",
    "explain": "hlomem.api.explain",
    "load": "hlomem.api.load",
    "pack": "hlomem.api.pack",
    "plan": "hlomem.api.plan",
    "read_oom": "hlomem.report.oom.log",
    "replan": "hlomem.api.replan",
    "verify": "hlomem.check.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
