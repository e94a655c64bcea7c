"""The order in which the CPU compiler made instructions."""

from __future__ import annotations

from tests.history.orders import listed

LOOP = """\
HloModule loop, is_scheduled=true

%region_0.1 (p: (s32[], f32[8], f32[8])) -> (s32[], f32[8], f32[8]) {
  %p = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  %w = f32[8]{0} get-tuple-element(%p), index=2
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8]{0} get-tuple-element(%p), index=1
  %next = s32[] negate(%i)
  %y = f32[8]{0} add(%x, %w)
  ROOT %result = (s32[], f32[8]{0}, f32[8]{0}) tuple(%next, %y, %w)
}

%region_1.2 (q: (s32[], f32[8], f32[8])) -> pred[] {
  %q = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  ROOT %less = pred[] compare(%j, %j), direction=LT
}

ENTRY %main.3 (a: s32[], b: f32[8], c: f32[8]) -> (f32[8], f32[8]) {
  %a = s32[] parameter(0)
  %b = f32[8]{0} parameter(1)
  %c = f32[8]{0} parameter(2)
  %copy = f32[8]{0} copy(%b)
  %sine = f32[8]{0} sine(%b)
  %init = (s32[], f32[8]{0}, f32[8]{0}) tuple(%a, %copy, %c)
  %while = (s32[], f32[8]{0}, f32[8]{0}) while(%init), condition=%region_1.2, body=%region_0.1
  %part = f32[8]{0} get-tuple-element(%while), index=1
  ROOT %tuple = (f32[8]{0}, f32[8]{0}) tuple(%sine, %part)
}
"""


def test_copy_insertion_makes_the_start_of_a_loop_anew() -> None:
    assert listed("cpu", LOOP, "main.3")[-4:] == ["while", "part", "tuple", "init"]


def test_copy_insertion_makes_parts_and_result_of_a_body_anew() -> None:
    assert listed("cpu", LOOP, "region_0.1") == ["p", "next", "y", "i", "x", "w", "result"]


def test_a_result_is_made_anew_where_inputs_and_outputs_alias() -> None:
    donated = LOOP.replace(
        "is_scheduled=true", "is_scheduled=true, input_output_alias={ {1}: (1, {}, may-alias) }"
    )
    assert listed("cpu", donated, "main.3")[-2:] == ["init", "tuple"]


def test_parts_of_a_rewritten_loop_are_younger_than_the_result() -> None:
    rewritten = LOOP.replace("region_0.1", "region_0.1.clone")
    assert listed("cpu", rewritten, "main.3")[-4:] == ["tuple", "while", "part", "init"]
