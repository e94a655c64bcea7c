"""Programs that keep less: as they are judged, planned and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.api.improve import new_findings
from hlomem.hlo.text.printer import format_module
from hlomem.remat.variants import PRICES, iter_variants, judge_changes, program_flops
from hlomem.schedule.planned_orders import temporary_bytes
from tests.remat.scanned import SCANNED, scanned_stages
from tests.schedule.programs import CPU, stages_of

STRAIGHT = [
    home
    for home in sorted(CPU.iterdir())
    if (home / "module.hlo").exists() and temporary_bytes(stages_of(home)) >= 1 << 14
]


@pytest.mark.parametrize("path", SCANNED, ids=lambda path: path.parent.parent.name)
def test_loops_stack_less_and_compute_the_same(path: Path) -> None:
    stages = scanned_stages(path)
    found = [variant for price in PRICES for variant in iter_variants(stages, price)]
    assert any(variant.stacks > 0 for variant in found)
    smallest = min(found, key=lambda variant: temporary_bytes(variant.stages))
    assert temporary_bytes(smallest.stages) < temporary_bytes(stages)
    for variant in found:
        assert judge_changes(stages.module, variant.changes) == []
        text = variant.changes[-1].text
        assert format_module(hlo.parse(text)) == text
        assert variant.flops == program_flops(variant.stages)
    assert new_findings(smallest.stages.module, stages.module, stages.options) == []


@pytest.mark.parametrize("home", STRAIGHT[::3], ids=lambda home: home.name)
def test_what_is_cut_at_the_peak_is_smaller_and_computes_the_same(home: Path) -> None:
    stages = stages_of(home)
    for price in (64, 0):
        last = temporary_bytes(stages)
        for variant in iter_variants(stages, price):
            assert temporary_bytes(variant.stages) < last
            last = temporary_bytes(variant.stages)
            assert judge_changes(stages.module, variant.changes) == []
