"""Values that wait in the host's memory, in programs XLA scheduled for GPUs and in small ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hlomem import hlo
from hlomem.api.load import load
from hlomem.api.plan import plan
from hlomem.hlo.text.printer import format_module
from hlomem.opt.checks import Allowed
from hlomem.opt.checks.offload import find_move_problems
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.remat.offload import choose_moves, make_moves, model_moves
from hlomem.opt.remat.state import start_state
from hlomem.opt.search import new_findings
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.orders.programs import GPU, stages_of
from tests.opt.remat.programs import HOST, MEBIBYTE, gpu_chain
from tests.places import GOLDENS
from tools.check_plans import places

if TYPE_CHECKING:
    from pathlib import Path


HOMES = sorted(home for home in GPU.iterdir() if (home / "module.hlo").exists())


@pytest.mark.parametrize("views", ["", "bitcasts"])
@pytest.mark.parametrize("share", [0.75, 0.5, 0.4])
def test_a_chain_fits_a_share(share: float, views: str) -> None:
    stages = gpu_chain(views=views)
    before = temporary_bytes(stages)
    moves = choose_moves(stages, round(share * before))
    edited = hlo.parse(format_module(make_moves(stages.module, moves, HOST)))
    planned = start_stages(edited, stages.options, order_lists=in_text_order)
    assert max(start_state(planned).levels()) <= share * before
    assert temporary_bytes(planned) < before
    assert 0 < temporary_bytes(planned, HOST) <= len(moves) * MEBIBYTE
    assert not find_move_problems(stages.module, edited, Allowed(host_color=HOST))
    assert not new_findings(edited, stages.module, stages.options)


def test_no_more_is_moved_than_needed() -> None:
    stages = gpu_chain()
    before = temporary_bytes(stages)
    assert not choose_moves(stages, before)
    assert len(choose_moves(stages, before - 1)) == 1
    assert len(choose_moves(stages, before - MEBIBYTE - 1)) == 2


def test_what_is_away_longest_and_hidden_best_goes_first() -> None:
    stages = gpu_chain()
    [move] = choose_moves(stages, temporary_bytes(stages) - 1)
    assert move.value == "a1"  # the first that is read last: most runs beside its copies
    assert move.read_by == "g1"
    assert move.size == MEBIBYTE


def test_copies_that_nothing_hides_cost_time() -> None:
    stages = gpu_chain()
    before = temporary_bytes(stages)
    few, many = (choose_moves(stages, round(share * before)) for share in (0.9, 0.4))
    assert model_moves(stages, ()) == 1.0
    assert 1.0 <= model_moves(stages, few) < model_moves(stages, many)


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
@pytest.mark.parametrize("share", [0.7, 0.3])
def test_programs_with_moves_are_right(home: Path, share: float) -> None:
    stages = stages_of(home)
    levels = start_state(stages).levels()
    moves = choose_moves(stages, round(share * max(levels, default=0)))
    edited = hlo.parse(format_module(make_moves(stages.module, moves, HOST)))
    assert not find_move_problems(stages.module, edited, Allowed(host_color=HOST))
    assert not new_findings(edited, stages.module, stages.options)
    planned = start_stages(edited, stages.options, order_lists=in_text_order)
    assert max(start_state(planned).levels(), default=0) <= max(levels, default=0)
    added = temporary_bytes(planned, HOST) - temporary_bytes(stages, HOST)
    assert added <= sum(move.size for move in moves)
    assert bool(added) == bool(moves)


def test_xla_places_moved_values_where_they_are_planned() -> None:
    home = GOLDENS / "handed_back" / "jaxlib-0.11.2" / "gpu-h200" / "host_moves"
    text = (home / "module.hlo").read_text(encoding="utf-8")
    made = plan(text, backend="gpu", chip="h200", era="jaxlib-0.11.2", order="text").dump
    assert places(made) == places(load(home))
    assert made.assignment is not None
    assert {allocation.color for allocation in made.assignment.allocations} == {0, HOST}
