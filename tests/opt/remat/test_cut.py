"""Programs cut at their peak: smaller, and computing the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.opt.candidate import Program
from hlomem.opt.checks import find_problems
from hlomem.opt.goal import Front, Rules
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.remat.cut import cut_inside
from hlomem.opt.search import new_findings
from hlomem.opt.strategies import propose_priced
from tests.opt.orders.programs import CPU, stages_of
from tests.opt.remat.scanned import SCANNED, name_of, scanned_stages

STRAIGHT = [
    home
    for home in sorted(CPU.iterdir())
    if (home / "module.hlo").exists() and temporary_bytes(stages_of(home)) >= 1 << 14
]


@pytest.mark.parametrize("path", SCANNED, ids=name_of)
def test_a_body_keeps_less_where_the_program_needs_most_in_it(path: Path) -> None:
    stages = scanned_stages(path)
    variant = cut_inside(Program(stages, Rules()).start(), 64)
    assert variant is not None
    assert variant.temporaries < temporary_bytes(stages)
    assert variant.flops >= 0  # or only later, where nobody reads it before
    assert find_problems(stages.module, variant.changes) == []
    module = variant.plan.module
    changed = {
        computation.name
        for computation in stages.module.outer_computations
        if [one.name for one in computation.instructions]
        != [one.name for one in module.computation_by_name[computation.name].instructions]
    }
    loops = [one for one in stages.module.entry.instructions if one.opcode == "while"]
    assert len(changed) == 1
    assert changed <= {loop.called_computations[0].name for loop in loops}
    assert new_findings(module, stages.module, stages.options) == []


@pytest.mark.parametrize("home", STRAIGHT[::3], ids=lambda home: home.name)
def test_what_is_cut_at_the_peak_is_smaller_and_computes_the_same(home: Path) -> None:
    stages = stages_of(home)
    for price in (64, 0):
        last = temporary_bytes(stages)
        for variant in propose_priced(Program(stages, Rules()).start(), Front(price)):
            assert variant.temporaries < last
            last = variant.temporaries
            assert find_problems(stages.module, variant.changes) == []
