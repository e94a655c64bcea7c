"""Values recomputed for next to nothing: within the share, smaller, and the same results."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.opt.candidate import Candidate, Program, start_text
from hlomem.opt.goal import Rules, Share
from hlomem.opt.orders.cost import module_time, program_flops
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.remat.cheap import find_cheap
from hlomem.opt.search import find_order, write
from hlomem.pipeline import Stages, in_text_order, start_stages
from tests.opt.orders.programs import stages_of
from tests.opt.remat.programs import HOMES, products
from tests.opt.remat.scanned import SCANNED, scanned_stages
from tests.places import GOLDENS


def _find(stages: Stages, share: float, ordered: Candidate | None = None) -> Candidate | None:
    return find_cheap(ordered or Program(stages, Rules("low")).start(), Share(share))


def _check(stages: Stages, found: Candidate, before: int, share: float) -> None:
    """All that is promised of a program that was found."""
    machine = stages.options.machine
    assert found.temporaries < before
    written, problems = write(found)
    assert not problems
    again = start_text(written.read_back, stages.options)
    assert found.given.flops == program_flops(stages)
    assert found.flops == program_flops(again) - found.given.flops
    assert found.flops <= share * found.given.flops
    edited, given = (module_time(one.module, machine) for one in (again, stages))
    assert found.time == edited - given <= share * given


def test_a_cheap_value_is_dropped_while_products_run() -> None:
    stages = start_stages(hlo.parse(products(4)), order_lists=in_text_order)
    found = _find(stages, 0.02)
    assert found is not None
    assert found.edit is not None
    assert [clone.original for clone in found.edit.clones] == ["t"]
    _check(stages, found, temporary_bytes(stages), 0.02)


@pytest.mark.parametrize("share", [0.0, 0.001])
def test_nothing_is_computed_again_beyond_the_share(share: float) -> None:
    stages = start_stages(hlo.parse(products(4)), order_lists=in_text_order)
    assert _find(stages, share) is None


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_what_is_found_keeps_to_its_share_and_computes_the_same(home: Path, share: float) -> None:
    stages = stages_of(home)
    ordered = find_order(Program(stages, Rules("low")))
    found = _find(stages, share, ordered)
    if found is not None:
        _check(stages, found, ordered.temporaries, share)


def test_many_values_of_unequal_price_keep_to_the_share() -> None:
    path = GOLDENS / "trials" / "cpu" / "gpt_bf16"
    [file] = path.glob("*jit_train_step.cpu_after_optimizations.txt.gz")
    module = hlo.parse(gzip.decompress(file.read_bytes()).decode())
    stages = start_stages(module, order_lists=in_text_order)
    found = _find(stages, 0.02)
    assert found is not None
    assert found.clones > 20
    _check(stages, found, temporary_bytes(stages), 0.02)


def test_the_same_program_is_found_every_time() -> None:
    found = [
        _find(start_stages(hlo.parse(products(4)), order_lists=in_text_order), 0.02)
        for _ in range(2)
    ]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].edit == found[1].edit


@pytest.mark.parametrize("path", SCANNED, ids=lambda path: path.parent.parent.name)
def test_loops_stack_less_within_the_share(path: Path) -> None:
    stages = scanned_stages(path)
    found = _find(stages, 0.1)
    assert found is not None
    assert found.stacks
    _check(stages, found, temporary_bytes(stages), 0.1)
