"""What libtpu says to broken plans: `python -m tests.jax.broken_plans KIND …`, a line each.

A process of its own, since libtpu may abort.
"""

from __future__ import annotations

import sys
from random import Random

from hlomem.base.errors import HlomemError
from hlomem.libtpu.partial_program import PhaseError
from hlomem.libtpu.phases import Compiled
from hlomem.libtpu.plans import checked
from tests.jax.test_linking import calls_of, phases, target
from tests.libtpu.mutants import mutant


def main() -> None:
    """Lower and link the same program with every broken plan."""
    calls = calls_of("residual")
    compiled = phases().compile(calls.stablehlo, calls.options)
    parts = phases().lower_parts(compiled, calls.options)
    for kind in sys.argv[1:]:
        broken = _harmful(compiled, kind)
        try:
            phases().link(compiled.with_plan(broken), parts, calls.options)
            answer = "accepted"
        except PhaseError:
            answer = "refused"
        print(f"{kind}\t{answer}", flush=True)  # noqa: T201 - for the parent


def _harmful(compiled: Compiled, kind: str) -> bytes:
    """The first plan of a kind that the checker refuses."""
    for seed in range(100):
        broken = mutant(compiled.plan, kind, Random(seed))  # noqa: S311 - the same every time
        if broken is not None:
            try:
                checked(compiled.module, broken, target().machine)
            except HlomemError:
                return broken
    raise AssertionError(f"none of the kind: {kind}")


if __name__ == "__main__":
    main()
