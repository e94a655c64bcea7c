"""Compiles training steps by XLA:CPU to a share of their temporaries, runs them, prints a table.

    python -m tools.measure_fits [--share 0.5] [--only NAME …]

Needs jax 0.10.2 or later. The programs are the training steps of `tools.order_programs`. For each:
XLA's report of temporaries as it compiles them and with `hlomem.jax.optimize(fit=…)`, whether they
fit, the operations added by XLA's own cost analysis and by our count, whether XLA reports what was
planned, and whether all results are equal to the bit on random inputs. The exit code is 1 if a
result differs, or a report is not as planned.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import hlomem.jax
from hlomem.jax import log
from tools.order_programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.order_programs import Program

jax: Any = import_module("jax")
numpy: Any = import_module("numpy")

_KINDS = ("_train", "_adam", "_remat")
STEPS = (*(name for name in PROGRAMS if any(kind in name for kind in _KINDS)), "drop", "moe")


def main(arguments: Sequence[str]) -> int:
    """Measure; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--only", nargs="*", default=STEPS, choices=STEPS)
    options = parser.parse_args(arguments)
    print(
        "| program | before | share | fits | FLOPs (XLA) | FLOPs (ours) | clones | planned | bits |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    results = [_measure(name, PROGRAMS[name], options.share) for name in options.only]
    return 0 if all(results) else 1


def _measure(name: str, program: Program, share: float) -> bool:
    function = jax.jit(program.function, donate_argnums=program.donated)
    jax.clear_caches()
    plain = function.lower(*program.arguments).compile()
    sizes = plain.memory_analysis()
    before = sizes.temp_size_in_bytes
    rest = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    log.forget()
    with hlomem.jax.optimize(fit=int(rest + share * before) + _SLACK, platforms="cpu"):
        fitted = function.lower(*program.arguments).compile()
    outcome = log.report().outcomes[-1]
    after = fitted.memory_analysis().temp_size_in_bytes
    if not before:
        return True
    is_planned = outcome.kind != "improved" or outcome.after == after
    is_equal = _outputs(plain, program) == _outputs(fitted, program)
    flops = fitted.cost_analysis()["flops"] / plain.cost_analysis()["flops"] - 1
    own = outcome.flops / max(outcome.program_flops, 1)
    print(
        f"| {name} | {before / 1e6:.2f} MB | {after / before:.3f} |"
        f" {'no' if outcome.missing else 'yes'} | {flops:+.1%} | {own:+.1%} | {outcome.clones} |"
        f" {'yes' if is_planned else 'NO'} | {'equal' if is_equal else 'OTHER'} |",
        flush=True,
    )
    return is_planned and is_equal


_SLACK = 4096
"""Bytes of constants and tables, which XLA's report does not count among arguments or results."""


def _outputs(compiled: Any, program: Program) -> list[bytes]:
    chance = numpy.random.default_rng(7)

    def make(shape: Any) -> Any:
        if numpy.issubdtype(shape.dtype, numpy.floating):
            return chance.normal(size=shape.shape).astype(shape.dtype) * 0.1
        return chance.integers(0, 8, shape.shape).astype(shape.dtype)

    arrays = jax.tree.map(make, program.arguments)
    leaves = jax.tree.leaves(compiled(*jax.tree.map(jax.numpy.array, arrays)))
    return [numpy.asarray(leaf).tobytes() for leaf in leaves]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
