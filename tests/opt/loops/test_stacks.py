"""Slices of stacks are recognised in fusions, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.hlo.text.shape_parser import parse_shape_text as parse_shape
from hlomem.opt.loops.pairs import Stack, find_pairs
from hlomem.opt.loops.stacks import have_same_slices, holds_slices, narrowed, one_slice, stacked

TEXT = """HloModule m, is_scheduled=true

%two (p0: f32[3,2], p1: f32[3,2], p2: f32[2], p3: s32[]) -> (f32[3,2], f32[3,2], f32[2]) {
  %p0 = f32[3,2]{1,0} parameter(0)
  %p1 = f32[3,2]{1,0} parameter(1)
  %p2 = f32[2]{0} parameter(2)
  %p3 = s32[] parameter(3)
  %zero = s32[] constant(0)
  %sine = f32[2]{0} sine(%p2)
  %tanh = f32[2]{0} tanh(%sine)
  %part = f32[1,2]{1,0} bitcast(%sine)
  %other = f32[1,2]{1,0} bitcast(%tanh)
  %put = f32[3,2]{1,0} dynamic-update-slice(%p0, %part, %p3, %zero)
  %put.1 = f32[3,2]{1,0} dynamic-update-slice(%p1, %other, %p3, %zero)
  ROOT %all = (f32[3,2]{1,0}, f32[3,2]{1,0}, f32[2]{0}) tuple(%put, %put.1, %tanh)
}

%body (state: (s32[], f32[2], f32[3,2], f32[3,2])) -> (s32[], f32[2], f32[3,2], f32[3,2]) {
  %state = (s32[], f32[2]{0}, f32[3,2]{1,0}, f32[3,2]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[2]{0} get-tuple-element(%state), index=1
  %s = f32[3,2]{1,0} get-tuple-element(%state), index=2
  %t = f32[3,2]{1,0} get-tuple-element(%state), index=3
  %both = (f32[3,2]{1,0}, f32[3,2]{1,0}, f32[2]{0}) fusion(%s, %t, %x, %i), kind=kLoop, calls=%two
  %s.1 = f32[3,2]{1,0} get-tuple-element(%both), index=0
  %t.1 = f32[3,2]{1,0} get-tuple-element(%both), index=1
  %x.1 = f32[2]{0} get-tuple-element(%both), index=2
  %one = s32[] constant(1)
  %i.1 = s32[] add(%i, %one)
  ROOT %next = (s32[], f32[2]{0}, f32[3,2]{1,0}, f32[3,2]{1,0}) tuple(%i.1, %x.1, %s.1, %t.1)
}

%goes_on (state.1: (s32[], f32[2], f32[3,2], f32[3,2])) -> pred[] {
  %state.1 = (s32[], f32[2]{0}, f32[3,2]{1,0}, f32[3,2]{1,0}) parameter(0)
  %i.2 = s32[] get-tuple-element(%state.1), index=0
  %three = s32[] constant(3)
  ROOT %less = pred[] compare(%i.2, %three), direction=LT
}

%inner (q0: f32[3,2], q1: s32[]) -> f32[2] {
  %q0 = f32[3,2]{1,0} parameter(0)
  %q1 = s32[] parameter(1)
  %zero.1 = s32[] constant(0)
  %two.1 = s32[] constant(2)
  %place = s32[] subtract(%two.1, %q1)
  %cut = f32[1,2]{1,0} dynamic-slice(%q0, %place, %zero.1), dynamic_slice_sizes={1,2}
  ROOT %flat = f32[2]{0} bitcast(%cut)
}

%outer (r0: f32[3,2], r1: f32[3,2], r2: s32[], r3: f32[2]) -> f32[2] {
  %r0 = f32[3,2]{1,0} parameter(0)
  %r1 = f32[3,2]{1,0} parameter(1)
  %r2 = s32[] parameter(2)
  %r3 = f32[2]{0} parameter(3)
  %a = f32[2]{0} fusion(%r0, %r2), kind=kLoop, calls=%inner
  %zero.2 = s32[] constant(0)
  %two.2 = s32[] constant(2)
  %place.1 = s32[] subtract(%two.2, %r2)
  %cut.1 = f32[1,2]{1,0} dynamic-slice(%r1, %place.1, %zero.2), dynamic_slice_sizes={1,2}
  %b = f32[2]{0} bitcast(%cut.1)
  %sum = f32[2]{0} add(%a, %b)
  ROOT %product = f32[2]{0} multiply(%sum, %r3)
}

%back (state.2: (s32[], f32[2], f32[3,2], f32[3,2])) -> (s32[], f32[2], f32[3,2], f32[3,2]) {
  %state.2 = (s32[], f32[2]{0}, f32[3,2]{1,0}, f32[3,2]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%state.2), index=0
  %y = f32[2]{0} get-tuple-element(%state.2), index=1
  %u = f32[3,2]{1,0} get-tuple-element(%state.2), index=2
  %v = f32[3,2]{1,0} get-tuple-element(%state.2), index=3
  %y.1 = f32[2]{0} fusion(%u, %v, %j, %y), kind=kLoop, calls=%outer
  %one.1 = s32[] constant(1)
  %j.1 = s32[] add(%j, %one.1)
  ROOT %next.1 = (s32[], f32[2]{0}, f32[3,2]{1,0}, f32[3,2]{1,0}) tuple(%j.1, %y.1, %u, %v)
}

%goes_on.1 (state.3: (s32[], f32[2], f32[3,2], f32[3,2])) -> pred[] {
  %state.3 = (s32[], f32[2]{0}, f32[3,2]{1,0}, f32[3,2]{1,0}) parameter(0)
  %j.2 = s32[] get-tuple-element(%state.3), index=0
  %three.1 = s32[] constant(3)
  ROOT %less.1 = pred[] compare(%j.2, %three.1), direction=LT
}

ENTRY %main (x.2: f32[2], w: f32[3,2]) -> f32[2] {
  %x.2 = f32[2]{0} parameter(0)
  %w = f32[3,2]{1,0} parameter(1)
  %none = s32[] constant(0)
  %room = f32[3,2]{1,0} copy(%w)
  %room.1 = f32[3,2]{1,0} copy(%w)
  %begin = (s32[], f32[2]{0}, f32[3,2]{1,0}, f32[3,2]{1,0}) tuple(%none, %x.2, %room, %room.1)
  %first = (s32[], f32[2]{0}, f32[3,2]{1,0}, f32[3,2]{1,0}) while(%begin), \
condition=%goes_on, body=%body
  %end = f32[2]{0} get-tuple-element(%first), index=1
  %s.2 = f32[3,2]{1,0} get-tuple-element(%first), index=2
  %t.2 = f32[3,2]{1,0} get-tuple-element(%first), index=3
  %begin.1 = (s32[], f32[2]{0}, f32[3,2]{1,0}, f32[3,2]{1,0}) tuple(%none, %end, %s.2, %t.2)
  %second = (s32[], f32[2]{0}, f32[3,2]{1,0}, f32[3,2]{1,0}) while(%begin.1), \
condition=%goes_on.1, body=%back
  ROOT %result = f32[2]{0} get-tuple-element(%second), index=1
}
"""
"""One fusion writes two stacks beside another result; another reads both, one within a fusion."""


def _stacks(text: str) -> list[Stack]:
    return [stack for pair in find_pairs(hlo.parse(text)) for stack in pair.stacks]


def test_both_stacks_of_a_fusion_are_found_with_their_values() -> None:
    stacks = _stacks(TEXT)
    assert [stack.value.name for stack in stacks] == ["sine", "tanh"]
    assert {stack.write.runs.name for stack in stacks} == {"both"}
    assert [stack.write.number for stack in stacks] == [0, 1]
    assert all(stack.places == (0, 1, 2) and stack.is_exact for stack in stacks)


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        # The stack is read by more than its write.
        ("%part = f32[1,2]", "%p4 = f32[3,2]{1,0} sine(%p0)\n  %part = f32[1,2]", ["tanh"]),
        # A result is taken twice, or handed to another element.
        ("tuple(%i.1, %x.1, %s.1, %t.1)", "tuple(%i.1, %x.1, %t.1, %s.1)", []),
        ("tuple(%i.1, %x.1, %s.1, %t.1)", "tuple(%i.1, %x.1, %t.1, %t.1)", []),
        # The body ends in the same write twice.
        ("tuple(%put, %put.1, %tanh)", "tuple(%put, %put, %tanh)", []),
        # What is written is not the whole slice.
        ("dynamic-update-slice(%p1, %other, %p3, %zero)", "add(%p1, %p1)", ["sine"]),
        # Emitters know such a fusion by more than its body.
        ("%i), kind=kLoop, calls=%two", "%i), kind=kCustom, calls=%two", []),
        # One reader does more than take slices.
        ("%sum = f32[2]", "%r4 = f32[3,2]{1,0} sine(%r1)\n  %sum = f32[2]", ["sine"]),
        ("%zero.1 = s32[]", "%q2 = f32[3,2]{1,0} sine(%q0)\n  %zero.1 = s32[]", ["tanh"]),
        # Slices are read in two orders: those of one are taken.
        ("%two.1 = s32[] constant(2)", "%two.1 = s32[] constant(9)", ["sine"]),
    ],
)
def test_what_is_not_only_written_and_read_by_slices_is_no_stack(
    old: str, new: str, left: list[str]
) -> None:
    assert TEXT.count(old) == 1
    assert [stack.value.name for stack in _stacks(TEXT.replace(old, new))] == left


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("f32[8,4,2]{2,1,0}", True),
        ("f32[8,4,2]{1,2,0}", True),
        ("f32[8,4,2]{2,0,1}", False),
        ("f32[8,4,128]{2,1,0:T(8,128)}", True),
        ("f32[8,128]{1,0:T(8,128)}", False),
        ("f32[]", False),
        ("f32[4,192]{1,0:T(256)}", False),  # libtpu refuses it: arrays of two dimensions have tiles
    ],
)
def test_slices_lie_whole_where_no_tile_holds_several(text: str, holds: bool) -> None:
    assert holds_slices(parse_shape(text)) is holds


def test_a_stack_in_another_shape_has_the_same_slices_only_if_there_are_as_many() -> None:
    whole = parse_shape("f32[8,4,2]{2,1,0}")
    assert have_same_slices(whole, parse_shape("f32[8,8]{1,0}"))
    assert have_same_slices(whole, parse_shape("f32[8,2,4]{1,2,0}"))
    assert not have_same_slices(whole, parse_shape("f32[16,4]{1,0}"))


def test_shapes_of_stacks_and_slices() -> None:
    value = parse_shape("f32[4,128]{0,1:T(8,128)}")
    assert stacked(value, 6).text == "f32[6,4,128]{1,2,0:T(8,128)}"
    assert one_slice(stacked(value, 6)).text == "f32[1,4,128]{1,2,0:T(8,128)}"
    like = parse_shape("bf16[6,4,128]{2,1,0:T(8,128)(2,1)}")
    assert narrowed(value, like).text == "bf16[4,128]{0,1:T(8,128)(2,1)}"
