"""Layouts: a result taken as it is computed."""

from __future__ import annotations

import pytest

from hlomem.api.advise import advise

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


def _behind_a_copy(*lines: str) -> str:
    """A program whose copy into another layout goes through some instructions to the result."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"""HloModule m, is_scheduled=true

%doubled (p: f32[64,32]) -> f32[64,32] {{
  %p = f32[64,32]{{0,1}} parameter(0)
  ROOT %d = f32[64,32]{{0,1}} add(%p, %p)
}}

ENTRY %main {{
  %a = f32[64,32]{{1,0}} parameter(0)
  %sine = f32[64,32]{{1,0}} sine(%a)
  %copy = f32[64,32]{{0,1}} copy(%sine)
{body}
}}
"""


FUSION = "%view = f32[64,32]{0,1} fusion(%copy), kind=kLoop, calls=%doubled"


@pytest.mark.parametrize(
    "end",
    [
        [FUSION, "ROOT %results = (f32[64,32]{0,1}) tuple(%view)"],
        ["%same = f32[64,32]{0,1} bitcast(%copy)", f"ROOT {FUSION.replace('%copy', '%same')}"],
    ],
    ids=["one of several", "the only one"],
)
def test_a_result_that_is_asked_for_in_an_odd_layout_need_not_be(end: list[str]) -> None:
    found = advise(_behind_a_copy(*end), backend="cpu").advice
    [advice] = [each for each in found if each.rule == "layout"]
    assert advice.title == "do not request the result view in layout {0,1}: copy converts it"
    assert (advice.method, advice.least) == ("possible", None)


@pytest.mark.parametrize(
    "end",
    [
        ["%view = f32[32,64]{1,0} bitcast(%copy)", "ROOT %r = (f32[32,64]{1,0}) tuple(%view)"],
        [
            "%one = f32[64,32]{0,1} negate(%copy)",
            "%two = f32[64,32]{0,1} abs(%copy)",
            "ROOT %sum = f32[64,32]{0,1} add(%one, %two)",
        ],
        ["%one = f32[64,32]{0,1} negate(%copy)", "ROOT %sum = f32[64,32]{0,1} add(%one, %one)"],
    ],
    ids=["usual layout", "two readers", "computed with"],
)
def test_a_copy_that_is_read_by_the_program_is_left_alone(end: list[str]) -> None:
    found = advise(_behind_a_copy(*end), backend="cpu").advice
    assert [each.title for each in found if each.rule == "layout"] == []
