"""hlomem as a pass of the compiler: JAX programs that need less memory, without a change in them.

    import hlomem.jax

    with hlomem.jax.optimize():
        step = jax.jit(train_step).lower(*arguments).compile()
    print(hlomem.jax.report())

XLA hands every module it has scheduled to a function of ours and takes back the order found by
`hlomem.schedule.search` (`jax.extend.xla`, since jax 0.10.2). Whatever goes wrong leaves XLA's own
order in place. Nothing outside this package imports JAX, and this package imports it when asked to
work, not before.
"""

from __future__ import annotations

from hlomem.jax.capture import Compiles, captured
from hlomem.jax.log import Outcome, Report, report
from hlomem.jax.oom import ExceptHook, ExplainedFunction, explain_oom, install_excepthook
from hlomem.jax.programs import CompiledProgram
from hlomem.jax.registration import Optimization, UnsupportedJaxError, optimize

__all__ = [
    "CompiledProgram",
    "Compiles",
    "ExceptHook",
    "ExplainedFunction",
    "Optimization",
    "Outcome",
    "Report",
    "UnsupportedJaxError",
    "captured",
    "explain_oom",
    "install_excepthook",
    "optimize",
    "report",
]
