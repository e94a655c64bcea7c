"""hlomem next to JAX: what a function's memory is for, and a pass that makes it need less.

    print(hlomem.jax.memory(train_step, params, batch, target="tpu-v5e:2x2"))
    with hlomem.jax.optimize():
        step = jax.jit(train_step).lower(*arguments).compile()
    print(hlomem.jax.report())

Nothing outside this package imports JAX, and this package imports it when asked to work.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "CompiledProgram",
    "Compiles",
    "ExceptHook",
    "ExplainedFunction",
    "FitsVerdict",
    "LinkReport",
    "MissingSoftwareError",
    "Optimization",
    "Outcome",
    "Report",
    "UnsupportedJaxError",
    "advise",
    "captured",
    "devices",
    "explain_oom",
    "fit",
    "fits",
    "front",
    "install_excepthook",
    "job",
    "kernel_memory",
    "leaks",
    "link",
    "memory",
    "now",
    "optimize",
    "report",
    "shard",
    "targets",
    "timeline",
]

if TYPE_CHECKING:
    from hlomem.jax.block_timeline import timeline
    from hlomem.jax.capture import Compiles, captured
    from hlomem.jax.compiled_programs import CompiledProgram
    from hlomem.jax.factory_front import front
    from hlomem.jax.fitting import fit
    from hlomem.jax.function_memory import memory
    from hlomem.jax.instants import now
    from hlomem.jax.job_recording import job
    from hlomem.jax.kernels.front import kernel_memory
    from hlomem.jax.leak_watch import leaks
    from hlomem.jax.linking.front import LinkReport, link
    from hlomem.jax.oom import ExceptHook, ExplainedFunction, explain_oom, install_excepthook
    from hlomem.jax.pass_.log import Outcome, Report, report
    from hlomem.jax.pass_.register import Optimization, UnsupportedJaxError, optimize
    from hlomem.jax.target_kinds import MissingSoftwareError, devices, targets
    from hlomem.jax.trials.advise import advise
    from hlomem.jax.trials.shard import shard
    from hlomem.jax.verdicts import FitsVerdict, fits

_HOME = {
    "CompiledProgram": "hlomem.jax.compiled_programs",
    "Compiles": "hlomem.jax.capture",
    "ExceptHook": "hlomem.jax.oom",
    "ExplainedFunction": "hlomem.jax.oom",
    "LinkReport": "hlomem.jax.linking.front",
    "MissingSoftwareError": "hlomem.jax.target_kinds",
    "Optimization": "hlomem.jax.pass_.register",
    "Outcome": "hlomem.jax.pass_.log",
    "Report": "hlomem.jax.pass_.log",
    "UnsupportedJaxError": "hlomem.jax.pass_.register",
    "advise": "hlomem.jax.trials.advise",
    "captured": "hlomem.jax.capture",
    "devices": "hlomem.jax.target_kinds",
    "explain_oom": "hlomem.jax.oom",
    "FitsVerdict": "hlomem.jax.verdicts",
    "fit": "hlomem.jax.fitting",
    "fits": "hlomem.jax.verdicts",
    "front": "hlomem.jax.factory_front",
    "install_excepthook": "hlomem.jax.oom",
    "job": "hlomem.jax.job_recording",
    "kernel_memory": "hlomem.jax.kernels.front",
    "leaks": "hlomem.jax.leak_watch",
    "link": "hlomem.jax.linking.front",
    "memory": "hlomem.jax.function_memory",
    "now": "hlomem.jax.instants",
    "optimize": "hlomem.jax.pass_.register",
    "report": "hlomem.jax.pass_.log",
    "shard": "hlomem.jax.trials.shard",
    "targets": "hlomem.jax.target_kinds",
    "timeline": "hlomem.jax.block_timeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
