"""The search finds legal orders that need no more, the same ones every time."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.hlo.schedule import Schedule
from hlomem.opt.checks.order import Allowed, check_orders
from hlomem.opt.goal import EFFORTS, Effort, Rules
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.orders.search import Improvement, find_orders, improve
from tests.opt.orders.programs import CPU, GPU, HOMES, name_of, stages_of


def _names(found: Improvement) -> dict[str, list[str]]:
    return {
        computation.name: [instruction.name for instruction in order]
        for computation, order in found.orders.items()
    }


@pytest.mark.parametrize("home", HOMES, ids=name_of)
def test_the_order_found_is_right_and_needs_what_is_said(home: Path) -> None:
    stages = stages_of(home)
    found = improve(stages)
    assert found.before == temporary_bytes(stages)
    assert found.bound is not None
    assert found.bound <= found.after <= found.before
    assert not check_orders(stages.module, found.orders)
    again = stages.rescheduled(Schedule({each: [*order] for each, order in found.orders.items()}))
    assert temporary_bytes(again) == found.after
    assert bool(found.orders) == (found.after < found.before)


@pytest.mark.parametrize("effort", EFFORTS)
def test_the_same_program_gets_the_same_order(effort: Effort) -> None:
    for home in (CPU / "g_cholesky_solve", CPU / "m_overlap", GPU / "tf_scan_layers"):
        stages = stages_of(home)
        assert _names(improve(stages, Rules(effort))) == _names(improve(stages, Rules(effort)))


@pytest.mark.parametrize("home", HOMES[::5], ids=name_of)
def test_orders_of_which_nothing_is_told_are_the_same(home: Path) -> None:
    stages = stages_of(home)
    for effort in EFFORTS[:2]:
        assert find_orders(stages, Rules(effort)) == improve(stages, Rules(effort)).orders


def test_more_effort_never_finds_less() -> None:
    for home in HOMES[::5]:
        low, default = (improve(stages_of(home), Rules(effort)).after for effort in EFFORTS[:2])
        assert default <= low


def test_every_computation_is_reported_with_its_peaks() -> None:
    found = improve(stages_of(CPU / "loops_in_loops"))
    assert found.found[-1].computation.is_entry
    assert all(each.peak <= each.given_peak for each in found.found[:-1])


def test_collectives_move_only_if_they_may() -> None:
    for home in (GPU / "sm_psum_scan", GPU / "collectives_in_loop"):
        stages = stages_of(home)
        free = improve(stages, Rules(may_reorder_collectives=True))
        assert not check_orders(stages.module, free.orders, Allowed(may_reorder_collectives=True))
        assert not check_orders(stages.module, improve(stages).orders)


def test_a_slowdown_that_is_allowed_needs_no_more_than_the_given_order() -> None:
    for home in (GPU / "collectives_in_loop", GPU / "pjit_tp_mlp"):
        stages = stages_of(home)
        found = improve(stages, Rules(max_slowdown=1.5))
        assert found.after <= found.before
        assert not check_orders(stages.module, found.orders, Allowed(may_lose_overlap=True))
