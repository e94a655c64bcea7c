"""Values that wait in the host's memory, in programs XLA scheduled for GPUs and in small ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hlomem import hlo
from hlomem.api.improve import new_findings
from hlomem.api.load import load
from hlomem.api.plan import plan
from hlomem.hlo.text.printer import format_module
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.pipeline import in_text_order, start_stages
from hlomem.remat.host import choose_moves, make_moves, model_moves
from hlomem.remat.host_check import find_move_problems
from hlomem.remat.state import start_state
from hlomem.schedule.planned_orders import temporary_bytes
from tests.places import GOLDENS
from tests.schedule.programs import GPU, stages_of
from tools.check_contact import places

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.pipeline import Stages

HOST = 5
MEBIBYTE = 1 << 20
HOMES = sorted(home for home in GPU.iterdir() if (home / "module.hlo").exists())


def chain(
    count: int = 8, views: str = "", *, is_opaque: bool = False, is_early: bool = False
) -> Stages:
    """Values of 1 MiB made one from another, read in the reverse order; maybe through bitcasts.

    Of opaque ones nobody knows how they are made, so that they cannot be made again. One more is
    made too early for a good order, if that is asked for.
    """
    shape, other = "f32[262144]{0}", "f32[512,512]{1,0}"
    lines = [f"%p = {shape} parameter(0)", f"%a0 = {shape} sine(%p)"]
    if is_early:
        lines.append(f"%e = {shape} exponential(%p)")
    for number in range(1, count):
        call = ("custom-call", ', custom_call_target="f"') if is_opaque else ("tanh", "")
        lines.append(f"%a{number} = {shape} {call[0]}(%a{number - 1}){call[1]}")
        if views:
            lines.append(f"%v{number} = {other} bitcast(%a{number})")
    lines.append(f"%g{count} = {other if views else shape} {'bitcast' if views else 'copy'}(%p)")
    for number in reversed(range(1, count)):
        kind, read = (other, f"%v{number}") if views else (shape, f"%a{number}")
        lines.append(f"%g{number} = {kind} multiply(%g{number + 1}, {read})")
    result = other if views else shape
    last = f"add(%g1, %{'e' if is_early else 'g1'})"
    lines.append(f"ROOT %r = {result} {last}")
    body = "\n".join(f"  {line}" for line in lines)
    text = (
        "HloModule m, is_scheduled=true\n\n"
        f"ENTRY %main (p: f32[262144]) -> {result.partition('{')[0]} {{\n{body}\n}}\n"
    )
    options = options_for(find_machine("gpu", "h200"), Release("jaxlib", (0, 11, 2)))
    return start_stages(hlo.parse(text), options, order_lists=in_text_order)


@pytest.mark.parametrize("views", ["", "bitcasts"])
@pytest.mark.parametrize("share", [0.75, 0.5, 0.4])
def test_a_chain_fits_a_share(share: float, views: str) -> None:
    stages = chain(views=views)
    before = temporary_bytes(stages)
    moves = choose_moves(stages, round(share * before))
    edited = hlo.parse(format_module(make_moves(stages.module, moves, HOST)))
    planned = start_stages(edited, stages.options, order_lists=in_text_order)
    assert max(start_state(planned).levels()) <= share * before
    assert temporary_bytes(planned) < before
    assert 0 < temporary_bytes(planned, HOST) <= len(moves) * MEBIBYTE
    assert not find_move_problems(stages.module, edited, HOST)
    assert not new_findings(edited, stages.module, stages.options)


def test_no_more_is_moved_than_needed() -> None:
    stages = chain()
    before = temporary_bytes(stages)
    assert not choose_moves(stages, before)
    assert len(choose_moves(stages, before - 1)) == 1
    assert len(choose_moves(stages, before - MEBIBYTE - 1)) == 2


def test_what_is_away_longest_and_hidden_best_goes_first() -> None:
    stages = chain()
    [move] = choose_moves(stages, temporary_bytes(stages) - 1)
    assert move.value == "a1"  # the first that is read last: most runs beside its copies
    assert move.read_by == "g1"
    assert move.size == MEBIBYTE


def test_copies_that_nothing_hides_cost_time() -> None:
    stages = chain()
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
    assert not find_move_problems(stages.module, edited, HOST)
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
