"""The least that a program's temporaries take: named, and never more than a plan needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.opt.candidate import Program
from hlomem.opt.goal import Budget, Rules
from hlomem.opt.orders.planned_orders import other_bytes, temporary_bytes
from hlomem.opt.remat.budget_search import find_single
from hlomem.opt.remat.floor import find_floor
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.orders.programs import stages_of
from tests.opt.remat.programs import HOMES, WIDE


def test_the_floor_is_what_the_hungriest_instruction_reads_and_makes() -> None:
    floor = find_floor(start_stages(hlo.parse(WIDE), order_lists=in_text_order))
    assert floor.instruction == "wide"
    assert floor.size == 4 * (4096 + 4096 + 8192)


@pytest.mark.parametrize("home", HOMES[::2], ids=lambda home: home.name)
def test_nothing_is_found_below_the_floor(home: Path) -> None:
    stages = stages_of(home)
    floor = find_floor(stages).size
    assert floor <= temporary_bytes(stages)
    start = Program(stages, Rules()).start()
    found = find_single(start, Budget(other_bytes(stages) + floor))
    assert all(one.temporaries >= floor for one in found)


SQUARE = 4 * 64 * 64
"""Bytes of the values of the programs below."""
LOOP = """HloModule loop, is_scheduled=true

%body (state: (s32[], f32[4096], f32[4096])) -> (s32[], f32[4096], f32[4096]) {
  %state = (s32[], f32[4096]{0}, f32[4096]{0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %a = f32[4096]{0} get-tuple-element(%state), index=1
  %b = f32[4096]{0} get-tuple-element(%state), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %sum = f32[4096]{0} add(%a, %b)
  %tan = f32[4096]{0} tanh(%sum)
  ROOT %out = (s32[], f32[4096]{0}, f32[4096]{0}) tuple(%next, %sum, %tan)
}

%condition (state.1: (s32[], f32[4096], f32[4096])) -> pred[] {
  %state.1 = (s32[], f32[4096]{0}, f32[4096]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %limit = s32[] constant(5)
  ROOT %before = pred[] compare(%i.1, %limit), direction=LT
}

ENTRY %main (p: f32[4096]) -> f32[] {
  %p = f32[4096]{0} parameter(0)
  %zero = s32[] constant(0)
  %start = s32[] copy(%zero)
  %first = f32[4096]{0} sine(%p)
  %second = f32[4096]{0} cosine(%p)
  %given = (s32[], f32[4096]{0}, f32[4096]{0}) tuple(%start, %first, %second)
  %loop = (s32[], f32[4096]{0}, f32[4096]{0}) while(%given), condition=%condition, body=%body
  %last = f32[4096]{0} get-tuple-element(%loop), index=2
  %begin = f32[] constant(0)
  ROOT %result = f32[] reduce(%last, %begin), dimensions={0}, to_apply=%plus
}
"""
PLUS = """
%plus (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}
"""


def test_what_a_loop_carries_is_there_all_the_time() -> None:
    text = LOOP.replace("\n%body", f"{PLUS}\n%body", 1)
    floor = find_floor(start_stages(hlo.parse(text), order_lists=in_text_order))
    assert floor.size >= 4 * (4096 + 4096)
    assert floor.instruction in ("loop", "sum", "tan")


def test_a_donated_argument_is_somewhere_until_its_result_is_made() -> None:
    """Two products need all their room, though the memory of the result is not written yet."""
    text = """HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY %main (w: f32[64,64], x: f32[64,64]) -> f32[64,64] {
  %w = f32[64,64]{1,0} parameter(0)
  %x = f32[64,64]{1,0} parameter(1)
  %kept = f32[64,64]{1,0} copy(%w)
  %a = f32[64,64]{1,0} sine(%x)
  %b = f32[64,64]{1,0} dot(%a, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %c = f32[64,64]{1,0} dot(%b, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %r = f32[64,64]{1,0} add(%kept, %c)
}
"""
    stages = start_stages(hlo.parse(text), order_lists=in_text_order)
    assert find_floor(stages).size == 2 * SQUARE == temporary_bytes(stages)
    text = text.replace(", input_output_alias={ {}: (0, {}, may-alias) }", "")
    stages = start_stages(hlo.parse(text), order_lists=in_text_order)
    assert find_floor(stages).size == SQUARE


def test_all_operands_but_the_last_wait_for_it() -> None:
    """Two values that each need a third: the one made last needs it while the other waits."""
    text = """HloModule m, is_scheduled=true

ENTRY %main (p: f32[64,64]) -> f32[] {
  %p = f32[64,64]{1,0} parameter(0)
  %a = f32[64,64]{1,0} sine(%p)
  %b = f32[64,64]{1,0} dot(%a, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %c = f32[64,64]{1,0} dot(%p, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %view = f32[4096]{0} bitcast(%b)
  %other = f32[4096]{0} bitcast(%c)
  %dot = f32[] dot(%view, %other), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT %r = f32[] negate(%dot)
}
"""
    floor = find_floor(start_stages(hlo.parse(text), order_lists=in_text_order))
    assert floor.size == 3 * SQUARE - 4  # which may lie in the memory of the result
    assert floor.instruction == "dot"


def test_a_cache_that_its_loop_reads_is_no_stack() -> None:
    text = LOOP.replace("\n%body", f"{PLUS}\n%body", 1)
    part = "%part = f32[1]{0} slice(%b), slice={[0:1]}"
    write = "%sum = f32[4096]{0} dynamic-update-slice(%a, %part, %i)"
    text = text.replace("%sum = f32[4096]{0} add(%a, %b)", f"{part}\n  {write}")
    floor = find_floor(start_stages(hlo.parse(text), order_lists=in_text_order))
    assert floor.size >= 4 * (4096 + 4096)
