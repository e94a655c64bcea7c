"""Layouts: a result taken as it is computed."""

from __future__ import annotations

from hlomem.advice.advising import advise

RESULT = """HloModule m, is_scheduled=true

ENTRY %main (a: f32[64,32]) -> f32[64,32] {
  %a = f32[64,32]{1,0} parameter(0)
  %sine = f32[64,32]{1,0} sine(%a)
  ROOT %copy = f32[64,32]{0,1} copy(%sine)
}
"""
ARGUMENT = """HloModule m, is_scheduled=true

ENTRY %main (a: f32[64,32]) -> f32[] {
  %a = f32[64,32]{1,0} parameter(0), metadata={op_name="weights"}
  %copy = f32[64,32]{0,1} copy(%a)
  ROOT %sum = f32[] custom-call(%copy), custom_call_target="sum"
}
"""


def test_a_result_is_taken_in_the_layout_it_is_computed_in() -> None:
    [advice] = [each for each in advise(RESULT, backend="cpu").advice if each.rule == "layout"]
    assert advice.title == "take the result that copy copies in layout {1,0}, as it is computed"
    assert "out_shardings=Format(Layout((0, 1)), sharding)" in advice.how
    assert advice.least == advice.most == 64 * 32 * 4


def test_an_argument_is_given_in_the_layout_it_is_read_in() -> None:
    [advice] = [each for each in advise(ARGUMENT, backend="cpu").advice if each.rule == "layout"]
    assert advice.title == "give weights in layout {0,1}, in which it is read"
    assert "in_shardings=Format(Layout((1, 0)), sharding)" in advice.how
    assert advice.least == 64 * 32 * 4
