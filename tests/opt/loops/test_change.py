"""Loops that stack less: as they are checked, planned and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.hlo.text.printer import format_module
from hlomem.opt.candidate import Program
from hlomem.opt.checks import find_problems
from hlomem.opt.constants import PRICES
from hlomem.opt.goal import Front, Rules
from hlomem.opt.loops.change import change_loops
from hlomem.opt.orders.cost import program_flops
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.search import new_findings
from hlomem.opt.strategies import propose_priced
from tests.opt.remat.scanned import ALL, HANDED, name_of, scanned_stages


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_loops_stack_less_and_compute_the_same(path: Path) -> None:
    stages = scanned_stages(path)
    prices = (16, 0) if path in HANDED else PRICES
    start = Program(stages, Rules()).start()
    found = [made for price in prices for made in propose_priced(start, Front(price))]
    assert any(variant.stacks > 0 for variant in found)
    smallest = min(found, key=lambda variant: variant.temporaries)
    assert smallest.temporaries < temporary_bytes(stages)
    for variant in found:
        assert find_problems(stages.module, variant.changes) == []
        text = format_module(variant.base)
        assert format_module(hlo.parse(text)) == text
        assert variant.flops == program_flops(variant.plan) - program_flops(stages)
    assert new_findings(smallest.plan.module, stages.module, stages.options) == []


@pytest.mark.parametrize("path", HANDED, ids=name_of)
def test_no_dropped_stack_is_left_anywhere(path: Path) -> None:
    stages = scanned_stages(path)
    variant = change_loops(Program(stages, Rules()).start(), 0)
    assert variant is not None
    module = variant.changes[0].module
    module.validate()
    loops = [one for one in module.entry.instructions if one.opcode in ("while", "call")]
    given = [one for one in stages.module.entry.instructions if one.opcode in ("while", "call")]
    for loop, before in zip(loops, given, strict=True):
        assert len(loop.shape.elements) < len(before.shape.elements)
    # A fusion makes nothing that nobody takes.
    for computation in module.outer_computations:
        for instruction in computation.instructions:
            if instruction.opcode == "fusion" and instruction.shape.is_tuple:
                taken = {user.tuple_index for user in instruction.users}
                assert taken == set(range(len(instruction.shape.elements)))
    # Everything that is written is called.
    called = {
        callee.name
        for computation in module.computations
        for instruction in computation.instructions
        for callee in instruction.called_computations
    }
    assert {one.name for one in module.computations} == called | {module.entry.name}
