"""Recomputation until a number is reached, on programs XLA scheduled."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.opt.candidate import Candidate, Program, choose_cheapest
from hlomem.opt.goal import Budget, Rules, WorkLeft
from hlomem.opt.orders.cost import Costs
from hlomem.opt.orders.planned_orders import other_bytes, temporary_bytes
from hlomem.opt.remat.budget_search import find_single
from hlomem.opt.remat.state import start_state
from hlomem.opt.search import write
from hlomem.pipeline import Stages, in_text_order, start_stages
from tests.opt.orders.programs import stages_of
from tests.opt.remat.programs import HOMES, chain


def _find(stages: Stages, room: int, work: WorkLeft | None = None) -> list[Candidate]:
    start = Program(stages, Rules()).start()
    return find_single(start, Budget(other_bytes(stages) + room, work=work))


def _best(stages: Stages, room: int) -> Candidate | None:
    return choose_cheapest(_find(stages, room), other_bytes(stages) + room)


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
def test_what_is_found_is_right_and_planned_as_said(home: Path) -> None:
    stages = stages_of(home)
    before = temporary_bytes(stages)
    best = _best(stages, before // 2)
    if best is not None:
        assert best.temporaries < before
        assert not write(best)[1]


@pytest.mark.parametrize(("share", "most"), [(0.75, 1.0), (0.5, 1.0), (0.3, 3.0)])
def test_a_chain_fits_a_share_at_a_price(share: float, most: float) -> None:
    stages = start_stages(hlo.parse(chain(32)), order_lists=in_text_order)
    before = temporary_bytes(stages)
    best = _best(stages, round(before * share))
    assert best is not None
    assert best.temporaries <= before * share
    assert best.flops <= most * best.given.flops
    assert best.flops == 4096 * best.clones
    assert not write(best)[1]


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
def test_nothing_is_edited_where_the_budget_is_met(home: Path) -> None:
    stages = stages_of(home)
    assert _find(stages, temporary_bytes(stages)) == []


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
def test_a_state_begins_as_the_given_program(home: Path) -> None:
    stages = stages_of(home)
    edit = start_state(stages).edit({})
    assert not edit.clones
    assert not edit.operands
    entry = stages.module.entry
    assert edit.orders == {entry.name: tuple(one.name for one in entry.instructions)}


def test_a_low_effort_plans_less() -> None:
    stages = start_stages(hlo.parse(chain(48)), order_lists=in_text_order)
    room = round(0.25 * temporary_bytes(stages))
    few, many = (_find(stages, room, WorkLeft(effort)) for effort in ("low", "default"))
    assert 0 < len(few) < len(many)
    assert min(one.temporaries for one in many) <= room


def test_nothing_is_planned_once_the_work_is_spent() -> None:
    stages = start_stages(hlo.parse(chain(32)), order_lists=in_text_order)
    work = WorkLeft("low")
    work.plans = 0
    assert _find(stages, temporary_bytes(stages) // 2, work) == []


def test_a_value_is_dropped_by_what_is_written_over_it() -> None:
    """The peak is the square of a value that is read once more, which may take its memory."""
    text = """\
HloModule m, is_scheduled=true

ENTRY %main (p: f32[64,64], q: f32[4096]) -> f32[] {
  %p = f32[64,64]{1,0} parameter(0)
  %q = f32[4096]{0} parameter(1)
  %a = f32[64,64]{1,0} dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %square = f32[64,64]{1,0} multiply(%a, %a)
  %row = f32[4096]{0} bitcast(%square)
  %b = f32[] dot(%row, %q), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %again = f32[4096]{0} bitcast(%a)
  %c = f32[] dot(%again, %q), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT %r = f32[] add(%b, %c)
}
"""
    stages = start_stages(hlo.parse(text), order_lists=in_text_order)
    size = 4 * 64 * 64
    assert temporary_bytes(stages) >= 2 * size
    best = _best(stages, size + 64)
    assert best is not None
    assert size <= best.temporaries <= size + 64
    assert not write(best)[1]


TWO_LOOPS = """\
HloModule m, is_scheduled=true

%plus (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}

%body (state: (s32[], f32[4096], f32[4096])) -> (s32[], f32[4096], f32[4096]) {
  %state = (s32[], f32[4096]{0}, f32[4096]{0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %a = f32[4096]{0} get-tuple-element(%state), index=1
  %b = f32[4096]{0} get-tuple-element(%state), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %sum = f32[4096]{0} add(%a, %b)
  ROOT %out = (s32[], f32[4096]{0}, f32[4096]{0}) tuple(%next, %sum, %b)
}

%condition (state.1: (s32[], f32[4096], f32[4096])) -> pred[] {
  %state.1 = (s32[], f32[4096]{0}, f32[4096]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %limit = s32[] constant(5)
  ROOT %before = pred[] compare(%i.1, %limit), direction=LT
}

%body.2 (state.2: (s32[], f32[4096], f32[4096])) -> (s32[], f32[4096], f32[4096]) {
  %state.2 = (s32[], f32[4096]{0}, f32[4096]{0}) parameter(0)
  %i.2 = s32[] get-tuple-element(%state.2), index=0
  %a.2 = f32[4096]{0} get-tuple-element(%state.2), index=1
  %b.2 = f32[4096]{0} get-tuple-element(%state.2), index=2
  %one.2 = s32[] constant(1)
  %next.2 = s32[] add(%i.2, %one.2)
  %product = f32[4096]{0} multiply(%a.2, %b.2)
  ROOT %out.2 = (s32[], f32[4096]{0}, f32[4096]{0}) tuple(%next.2, %product, %b.2)
}

%until (state.3: (s32[], f32[4096], f32[4096])) -> pred[] {
  %state.3 = (s32[], f32[4096]{0}, f32[4096]{0}) parameter(0)
  %i.3 = s32[] get-tuple-element(%state.3), index=0
  %limit.2 = s32[] constant(7)
  ROOT %before.2 = pred[] compare(%i.3, %limit.2), direction=LT
}

ENTRY %main (p: f32[4096]) -> f32[] {
  %p = f32[4096]{0} parameter(0)
  %zero = s32[] constant(0)
  %none = f32[] constant(0)
  %given = f32[4096]{0} cosine(%p)
  %start = s32[] copy(%zero)
  %first = f32[4096]{0} sine(%p)
  %begin = (s32[], f32[4096]{0}, f32[4096]{0}) tuple(%start, %first, %given)
  %loop = (s32[], f32[4096]{0}, f32[4096]{0}) while(%begin), condition=%condition, body=%body
  %last = f32[4096]{0} get-tuple-element(%loop), index=1
  %wide = f32[16384]{0} pad(%last, %none), padding=0_12288
  %total = f32[] reduce(%wide, %none), dimensions={0}, to_apply=%plus
  %start.2 = s32[] copy(%zero)
  %second = f32[4096]{0} broadcast(%total), dimensions={}
  %begin.2 = (s32[], f32[4096]{0}, f32[4096]{0}) tuple(%start.2, %second, %given)
  %loop.2 = (s32[], f32[4096]{0}, f32[4096]{0}) while(%begin.2), condition=%until, body=%body.2
  %last.2 = f32[4096]{0} get-tuple-element(%loop.2), index=1
  ROOT %r = f32[] reduce(%last.2, %none), dimensions={0}, to_apply=%plus
}
"""
"""A value that two loops are given, and much between them."""


def test_what_a_later_loop_is_given_is_recomputed_for_it() -> None:
    stages = start_stages(hlo.parse(TWO_LOOPS), order_lists=in_text_order)
    size, before = 4 * 4096, temporary_bytes(stages)
    best = _best(stages, before - size)
    assert best is not None
    assert best.temporaries <= before - size
    assert not write(best)[1]
    assert best.flops == 4096


def test_operations_are_counted_from_shapes() -> None:
    text = """\
HloModule m, is_scheduled=true

%body (x: f32[8,16], y: f32[16,4]) -> f32[8,4] {
  %x = f32[8,16]{1,0} parameter(0)
  %y = f32[16,4]{1,0} parameter(1)
  %dot = f32[8,4]{1,0} dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %twice = f32[8,4]{1,0} add(%dot, %dot)
}

ENTRY %main (a: f32[8,16], b: f32[16,4], i: f32[1,9,9,2], k: f32[3,3,2,5]) -> f32[1,7,7,5] {
  %a = f32[8,16]{1,0} parameter(0)
  %b = f32[16,4]{1,0} parameter(1)
  %i = f32[1,9,9,2]{3,2,1,0} parameter(2)
  %k = f32[3,3,2,5]{3,2,1,0} parameter(3)
  %f = f32[8,4]{1,0} fusion(%a, %b), kind=kOutput, calls=%body
  ROOT %c = f32[1,7,7,5]{3,2,1,0} convolution(%i, %k), window={size=3x3}, dim_labels=b01f_01io->b01f
}
"""
    module = hlo.parse(text)
    costs = Costs(lambda shape: 4 * len(shape.dimensions))
    by_name = {one.name: costs.flops(one) for one in module.entry.instructions}
    assert by_name["f"] == 2 * 8 * 16 * 4 + 8 * 4
    assert by_name["c"] == 2 * (7 * 7 * 5) * (3 * 3 * 2)
    assert by_name["a"] == 0
