"""Programs that keep less: as they are judged, planned and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.hlo.text.printer import format_module
from hlomem.opt.order_search import new_findings
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.remat.variants import (
    PRICES,
    Variant,
    cut_inside,
    iter_variants,
    judge_changes,
    program_flops,
)
from tests.opt.orders.programs import CPU, stages_of
from tests.opt.remat.scanned import ALL, HANDED, SCANNED, name_of, scanned_stages

STRAIGHT = [
    home
    for home in sorted(CPU.iterdir())
    if (home / "module.hlo").exists() and temporary_bytes(stages_of(home)) >= 1 << 14
]


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_loops_stack_less_and_compute_the_same(path: Path) -> None:
    stages = scanned_stages(path)
    prices = (16, 0) if path in HANDED else PRICES
    found = [variant for price in prices for variant in iter_variants(stages, price)]
    assert any(variant.stacks > 0 for variant in found)
    smallest = min(found, key=lambda variant: temporary_bytes(variant.stages))
    assert temporary_bytes(smallest.stages) < temporary_bytes(stages)
    for variant in found:
        assert judge_changes(stages.module, variant.changes) == []
        text = format_module(variant.changes[-1].module)
        assert format_module(hlo.parse(text)) == text
        assert variant.flops == program_flops(variant.stages)
    assert new_findings(smallest.stages.module, stages.module, stages.options) == []


@pytest.mark.parametrize("path", SCANNED, ids=name_of)
def test_a_body_keeps_less_where_the_program_needs_most_in_it(path: Path) -> None:
    stages = scanned_stages(path)
    variant = cut_inside(Variant((), stages, program_flops(stages)), 64)
    assert variant is not None
    assert temporary_bytes(variant.stages) < temporary_bytes(stages)
    assert variant.flops >= program_flops(stages)  # or only later, where nobody reads it before
    assert judge_changes(stages.module, variant.changes) == []
    module = variant.stages.module
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


@pytest.mark.parametrize("path", HANDED, ids=name_of)
def test_no_dropped_stack_is_left_anywhere(path: Path) -> None:
    stages = scanned_stages(path)
    variant = next(iter_variants(stages, 0))
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


@pytest.mark.parametrize("home", STRAIGHT[::3], ids=lambda home: home.name)
def test_what_is_cut_at_the_peak_is_smaller_and_computes_the_same(home: Path) -> None:
    stages = stages_of(home)
    for price in (64, 0):
        last = temporary_bytes(stages)
        for variant in iter_variants(stages, price):
            assert temporary_bytes(variant.stages) < last
            last = temporary_bytes(variant.stages)
            assert judge_changes(stages.module, variant.changes) == []
